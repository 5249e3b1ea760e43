"""How many jobs a process may take now, and from which queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tenure.clock import Clock
from tenure.worker.freed import Freed
from tenure.worker.hand import Hand
from tenure.worker.room import NO_ROOM, FreeSlots, Room
from tenure.worker.table import Table

LONG = 0.01
"""Seconds from which on a job's slot is free only once the broker has answered how it ended."""

STUCK = 0.01
"""Seconds after which what is in hand and still waits goes back, at the second look: it was to last half as long, and
other workers may have slots for it.  A process that had no turn itself has had one by the second look."""

_FULL_PAUSE = 0.02
_ANSWER_PAUSE = 0.001


class Admission:
    """Knows which slots are free, and what may be in hand beyond them.

    As many jobs as there are free slots, so that nothing is hoarded; only where the last ones were very short, a few
    milliseconds' worth more, so that no slot waits for the next take.  What is in hand and does not come to its start
    goes back by `put_back`, which is given a number and calls `freed` for each.

    `freed` and `ended` may be called from any thread; all else belongs to the taker's.
    """

    def __init__(
        self,
        counts: tuple[int, int],
        queues: Mapping[str, frozenset[int]],
        table: Table,
        clock: Clock,
        draining: threading.Event,
        put_back: Callable[[int], None],
        alone: bool,
    ) -> None:
        self.slots = FreeSlots(counts, queues, alone)
        self._table = table
        self._clock = clock
        self._draining = draining
        self._put_back = put_back
        self._freed = Freed()
        self._hand = Hand()
        self._asked = False  # for more than is in hand, and nothing has come since
        self._unanswered: set[bytes] = set()
        self._pause = _ANSWER_PAUSE
        self.freed = self._freed.put
        """A slot of this kind has ended its job."""
        self.wake = self._freed.wake

    def ended(self, receipt: bytes, seconds: float) -> None:
        """A function has run for so many seconds, and what became of its job is about to be settled."""
        self._hand.ended(seconds)
        if seconds >= LONG:
            self._unanswered.add(receipt)

    def took(self, kind: int) -> None:
        """A slot of this kind has begun a job, or will."""
        self._asked = False
        self.slots.took(kind)

    def room(self, rest: float = 0.0) -> Room:
        """Wait until a slot is free and return what may be taken; with limit 0: ask again.

        `rest` is how many seconds to wait for one more slot before some of the queues are asked for.
        """
        self._collect()
        if self._draining.is_set():
            return NO_ROOM
        owed = self._owed()
        spare = 0 if owed or self._table.lent() else self._spare()
        if self.slots.in_hand:
            return self._beyond(spare)
        room = self.slots.room()
        if spare and room.queues is None and not self._asked:
            # Not waited for either: by the time that jobs are added, the pace of the last ones says nothing.
            self._asked = True
            return self._entered(Room(room.limit + spare, parks=False))
        if room.limit < 1 or (room.queues is not None and rest):
            self._collect(1, None if room.limit < 1 else rest)
            room = self.slots.room()
            owed = self._owed()
        if owed and room.limit <= owed:
            self._clock.wait(self._draining, self._pause)
            self._pause = min(2 * self._pause, _FULL_PAUSE)
            return NO_ROOM
        self._pause = _ANSWER_PAUSE
        return self._entered(room._replace(limit=room.limit - owed))

    def _spare(self) -> int:
        return self._hand.size(self._clock.boot()) if self.slots.may_have_in_hand else 0

    def _beyond(self, spare: int) -> Room:
        """Return what may be taken while all slots are busy and jobs wait for them here; half of these have to be used.

        Such a take does not wait at the broker: what is in hand has to be looked after.
        """
        kept = 0 if self._asked else spare // 2
        wanted = self.slots.in_hand - kept
        if wanted > 0:
            came = self._collect(wanted, STUCK)
            if came < wanted and self._collect(wanted - came, STUCK) < wanted - came:
                self._put_back(self.slots.in_hand)
            return NO_ROOM
        self._asked = True
        return self._entered(Room(spare - self.slots.in_hand, parks=False))

    def _entered(self, room: Room) -> Room:
        """Return no more room than the table has places."""
        places = self._table.room()
        if not places:
            # Hundreds of settlements wait for their answers: the broker is away or slow.
            self._clock.wait(self._draining, _FULL_PAUSE)
        return room if room.limit <= places else room._replace(limit=places)

    def _owed(self) -> int:
        """Return how many jobs that took a while have ended here and not yet at the broker.

        Nothing is taken in their place until then, so that no more is leased than there are slots.  For shorter ones
        that would cost too much: the next one is asked for while the end of the last one is on its way.
        """
        for receipt in tuple(self._unanswered):
            if not self._table.knows(receipt):
                self._unanswered.discard(receipt)
        return len(self._unanswered)

    def _collect(self, count: int = 0, wait: float | None = 0.0) -> int:
        """Count the slots that have become free, once there are `count`, or after `wait` seconds (None: never)."""
        kinds = self._freed.get(count, wait)
        for kind in kinds:
            self.slots.gave_back(kind)
        return len(kinds)
