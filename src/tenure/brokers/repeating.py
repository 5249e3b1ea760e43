"""A call of `add` that is repeated until each of its jobs is answered, and what the answers came to.

How jobs are written and answers read is each broker's own; when to try again, when to give up and what is counted are
the same for all.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from tenure.broker import Added, ProducerCounts
from tenure.clock import Clock
from tenure.errors import AddError, BrokerUnavailable, TenureError
from tenure.message import Message
from tenure.retry import reconnect_delay

RESEND_LIMIT = 300.0
"""Seconds after its first write during which a job is sent again; the broker knows it for twice as long."""


class Counts:
    """What a process's adds came to; safe to use from several threads.

    An unconfirmed id that a later answer names counts as added, for then it was stored.
    """

    MAX_KEPT = 100_000
    """Unconfirmed ids that are kept to be met again; older ones stay unconfirmed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added = 0
        self._duplicates = 0
        self._unconfirmed = 0
        self._open: dict[str, None] = {}

    def created(self, jobs: int = 1) -> None:
        """Count jobs that were made at the first call."""
        with self._lock:
            self._added += jobs

    def exists(self, first_id: str) -> None:
        """Count a duplicate of `first_id`."""
        with self._lock:
            self._duplicates += 1
            if self._settle(first_id):
                self._added += 1

    def gave_up(self, ids: Sequence[str]) -> None:
        """Count adds that may or may not be stored."""
        with self._lock:
            self._unconfirmed += len(ids)
            self._open.update(dict.fromkeys(ids))
            while len(self._open) > self.MAX_KEPT:
                del self._open[next(iter(self._open))]

    def resent(self, id: str) -> bool:
        """Take an id off the unconfirmed ones; False when it was not among them any more and is counted already."""
        with self._lock:
            return self._settle(id)

    def _settle(self, id: str) -> bool:
        if not self._open or id not in self._open:
            return False
        del self._open[id]
        self._unconfirmed -= 1
        return True

    def now(self) -> ProducerCounts:
        """Return the counts."""
        with self._lock:
            return ProducerCounts(self._added, self._duplicates, self._unconfirmed)


class Desk(Protocol):
    """What a repeated call needs of its broker; times are seconds."""

    tally: Counts
    clock: Clock
    roll: Callable[[], float]
    add_timeout: float
    closing: threading.Event


class Batch:
    """Jobs that are sent with one write, by the indexes of those that are unanswered.

    `written_at` is the first write's time.  `refusal` is why the broker could not store some of them when it was asked
    last.
    """

    __slots__ = ("indexes", "refusal", "size", "written_at")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.size = 0
        self.written_at: float | None = None
        self.refusal: Exception | None = None


D = TypeVar("D", bound=Desk)
B = TypeVar("B", bound=Batch)


class RepeatedCall(ABC, Generic[D, B]):
    """The messages of one `add`, encoded once; `run` may be called again after BrokerUnavailable."""

    def __init__(self, desk: D, messages: Sequence[Message]) -> None:
        self._desk = desk
        self._messages = messages
        self._results: list[Added | None] = [None] * len(messages)
        self._given_up: set[str] = set()
        self._untold = False
        self._batches = self._encode()

    def run(self, started: float | None = None) -> list[Added]:
        """Repeat until every job is answered; returns one answer a message, or raises BrokerUnavailable.

        `started` (boot clock) is when the first batch's time began; now, where it is not given.
        """
        self._untold = False
        try:
            while self._batches:
                self._run_batch(self._batches[0], self._desk.clock.boot() if started is None else started)
                started = None
                del self._batches[0]
        except BaseException:
            self._note_unconfirmed()
            raise
        return [result for result in self._results if result is not None]

    @abstractmethod
    def _encode(self) -> list[B]:
        """Encode each message once and lay them into batches; one that cannot be sent gets its error."""

    @abstractmethod
    def _try(self, batch: B, left: float) -> None:
        """Write what is unanswered once, within `left` seconds; what is answered leaves the batch.

        Raises ConnectionError where a further try can help, another TenureError where none can.
        """

    def _because(self, why: Exception | None, refusal: Exception | None) -> str:
        """Say what kept the answer away: what the broker said, and what happened to the connection."""
        said = None if refusal is None else f"the server answered {refusal}"
        return "; ".join(str(one) for one in (said, why) if one is not None) or "no answer in time"

    def _refuse(self, index: int, error: Exception) -> None:
        """Give a message that cannot be sent its error."""
        id = self._messages[index].id
        if not isinstance(error, TenureError):
            error = AddError(f"job {id} has no wire form: {error}", id)
        self._results[index] = Added(id, False, error)

    def _run_batch(self, batch: B, started: float) -> None:
        """Try again and again until all is answered or the time is over."""
        desk = self._desk
        failures = 0
        why: Exception | None = None
        while batch.indexes:
            left = self._left(batch, started)
            if left <= 0 or desk.closing.is_set():
                raise self._unavailable(why, batch) from _told(batch.refusal or why)
            try:
                self._try(batch, left)
            except ConnectionError as error:
                why = error
            except TenureError as error:  # access, or a setting of the server: another try would get the same
                self._untold = batch.written_at is None
                raise self._unavailable(error, batch) from _told(error)
            if batch.indexes:
                failures += 1
                left = max(0.0, self._left(batch, started))
                desk.clock.wait(desk.closing, min(left, reconnect_delay(failures, desk.roll())))

    def _left(self, batch: B, started: float) -> float:
        """Return the seconds that are left to this run."""
        now = self._desk.clock.boot()
        left = self._desk.add_timeout - (now - started)
        if batch.written_at is not None:
            left = min(left, RESEND_LIMIT - (now - batch.written_at))
        return left

    def _unavailable(self, why: Exception | None, batch: B) -> BrokerUnavailable:
        ids = [self._messages[index].id for one in self._batches for index in one.indexes]
        first = self._messages[batch.indexes[0]]
        what = f"job {first.id}" if len(ids) == 1 else f"{len(ids)} jobs, {first.id} the first,"
        closed = self._desk.closing.is_set()
        because = "the broker is closed" if closed else self._because(why, batch.refusal)
        text = f"{what} not confirmed; safe to send again with resend(), or by a call with the same key ({because})"
        if self._untold:
            text = f"{what} not added: {because}"
        return BrokerUnavailable(text, first.id, first.key or first.id, self._resend)

    def _note_unconfirmed(self) -> None:
        if self._untold:  # the broker was told of none of them, so there is nothing to confirm
            return
        ids = [self._messages[index].id for batch in self._batches for index in batch.indexes]
        news = [id for id in ids if id not in self._given_up]
        self._desk.tally.gave_up(news)
        self._given_up.update(news)

    def _resend(self) -> list[Added]:
        now = self._desk.clock.boot()
        for batch in self._batches:
            if batch.written_at is not None and now - batch.written_at >= RESEND_LIMIT:
                first = self._messages[batch.indexes[0]]
                text = (
                    f"job {first.id} was first sent more than {RESEND_LIMIT / 60:g} min ago and is not confirmed: it "
                    "is not sent again any more. Only a call with an explicit key is still safe"
                )
                raise BrokerUnavailable(text, first.id, first.key or first.id)
        return self.run()


def _told(error: Exception | None) -> Exception | None:
    """Return a cause without its frames, nor those of what it came from: they are ours, and would hide the caller's."""
    for one in (error, None if error is None else error.__cause__):
        if one is not None:
            one.__traceback__ = None
    return error
