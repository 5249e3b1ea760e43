"""Which slots are free, and so which queues may be asked for how many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenure.task import Task

SYNC, ASYNC = 0, 1
"""The kinds of slots: a thread for a plain function, and a place in the event loop for a coroutine."""
PAIR = 2
"""Not a kind but one slot of each."""


class Room(NamedTuple):
    """How many jobs may be taken (0: none just now), and from which queues (None: all).

    `parks`: the take may wait at the broker for the first.
    """

    limit: int
    queues: tuple[str, ...] | None = None
    parks: bool = True


NO_ROOM = Room(0)


class FreeSlots:
    """Counts the free slots of each kind; used by the taker's thread alone, but for `needs`.

    A queue is asked for only while a slot of each kind that its tasks need is free, and for no more jobs than the
    scarcest of these kinds has: whatever comes can start at once, and nothing is hoarded.  `alone`: a job takes a slot
    of either kind, so that there is one at a time.
    """

    def __init__(
        self, counts: tuple[int, int], kinds_of_queues: Mapping[str, frozenset[int]], alone: bool = False
    ) -> None:
        self._alone = alone
        self._free = list(counts)
        self._kinds = dict(kinds_of_queues)
        self._all = frozenset[int]().union(*self._kinds.values()) or frozenset({SYNC})

    @property
    def may_have_in_hand(self) -> bool:
        """Whether a job that waits here can be started by whichever slot is free next."""
        return not self._alone and self._all == {SYNC}

    @property
    def in_hand(self) -> int:
        """How many jobs wait here for a slot."""
        return max(0, -self._free[SYNC])

    def took(self, kind: int) -> None:
        """A slot of this kind has begun a job, or will."""
        for one in self._taken_by(kind):
            self._free[one] -= 1

    def gave_back(self, kind: int) -> None:
        """A slot of this kind has ended its job."""
        for one in self._taken_by(kind):
            self._free[one] += 1

    def _taken_by(self, kind: int) -> tuple[int, ...]:
        return (SYNC, ASYNC) if self._alone else (kind,)

    def is_surprised_by(self, queue: str, kind: int) -> bool:
        """Whether a job of this kind has come from a queue where none was looked for, and no slot is free for it.

        Its task's own queue is another one then.  From now on this queue is asked for only when there is room for it.
        """
        kinds = self._kinds.get(queue, self._all)
        if kind in kinds:
            return False
        self._kinds[queue] = kinds | {kind}
        self._all |= {kind}
        return self._free[kind] < 1

    def needs(self, queue: str | None) -> list[frozenset[int]]:
        """Return the kinds that have to be free for a take from this queue, or from each (None); none: not served."""
        if queue is None:
            return [*self._kinds.copy().values()]
        kinds = self._kinds.get(queue)
        return [] if kinds is None else [kinds]

    def room(self) -> Room:
        """Return what may be asked for now."""
        limit = min([self._free[kind] for kind in self._all])
        if limit > 0:
            return Room(limit)
        queues = tuple(name for name, kinds in self._kinds.items() if all(self._free[kind] > 0 for kind in kinds))
        if not queues:
            return NO_ROOM
        return Room(min(self._free[kind] for name in queues for kind in self._kinds[name]), queues)


def kind_of(task: Task[..., object]) -> int:
    """Return the kind of slot that a task's jobs run in."""
    return ASYNC if task.is_async else SYNC


def kinds_of_queues(queues: Sequence[str], tasks: Mapping[str, Task[..., object]]) -> dict[str, frozenset[int]]:
    """Return for each queue the kinds of slots that its tasks need; for one without tasks here, all kinds there are."""
    every = frozenset(kind_of(task) for task in tasks.values())
    return {
        queue: frozenset(kind_of(task) for task in tasks.values() if task.queue == queue) or every for queue in queues
    }


def mixed_queues(queues: Sequence[str], tasks: Mapping[str, Task[..., object]]) -> str:
    """Return a line that warns of queues with both kinds of tasks; an empty one: there are none."""
    kinds = {name: {kind_of(task) for task in tasks.values() if task.queue == name} for name in queues}
    mixed = [name for name in queues if len(kinds[name]) > 1]
    if not mixed:
        return ""
    return (
        f"queues with both plain functions and coroutines: {', '.join(mixed)}. They are taken from only while slots of "
        "both kinds are free, so long functions keep their coroutines waiting, and the other way round; give the two "
        "queues of their own: @app.task(queue=...)"
    )
