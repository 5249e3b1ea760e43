"""What runs scripts in queues, over a link of its own or over those of the pool."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from tenure.brokers.pool import Pool
from tenure.brokers.redis.layout import base, wake
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.refusals import cannot_write
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import Script
from tenure.clock import Clock
from tenure.errors import ServerError

WRITE_ERRORS = frozenset(("OOM", "MISCONF"))
"""Refusals of a server that cannot write now, and will be able to once somebody has seen to it."""


class Ask(NamedTuple):
    """One run of a script in one queue."""

    script: Script
    queue: str
    args: Sequence[Word]


class Line(Protocol):
    """What runs scripts in queues; safe to use from several threads."""

    def ask(self, script: Script, queue: str, args: Sequence[Word]) -> tuple[float, Any]:
        """Run a script; returns when it was sent (boot clock, right before the write) and its answer.

        Raises ConnectionError, also where the server cannot write now.
        """

    def ask_all(self, asks: Sequence[Ask]) -> tuple[float, list[Any]]:
        """Run scripts in several queues with one write for each server; raises as `ask` does."""

    def command(self, *words: Word, key: bytes) -> Any:
        """Send one command; raises ConnectionError."""


class _Asking:
    """Runs scripts over one link; `read_limit` is the seconds in which an answer has to be there.

    `beside`: the `vain` of another line of the same process.  For `first` see `Pulse`.
    """

    def __init__(self, clock: Clock, read_limit: float, first: str = "", beside: Vain | None = None) -> None:
        self._boot = clock.boot
        self._read_limit = read_limit
        self.vain = Vain(clock)
        self._pulse = Pulse(clock, [self.vain] if beside is None else [self.vain, beside], first)

    def ask(self, link: Link, script: Script, queue: str, args: Sequence[Word]) -> tuple[float, Any]:
        words = self._words(link, script, queue, args)
        sent_at = self._boot()
        try:
            answer = link.call(script, [base(queue)], words, self._read_limit)
        except ServerError as error:
            self.vain.answered()
            raise as_fault(error) from error
        self._note_answer(script, queue)
        return sent_at, answer

    def ask_when_woken(
        self, link: Link, script: Script, queue: str, args: Sequence[Word], seconds: float
    ) -> tuple[float, Any]:
        words = self._words(link, script, queue, args, seconds)
        sent_at = self._boot()
        try:
            answer = link.pop_then_call(wake(queue), seconds, script, [base(queue)], words)
        except ServerError as error:
            self.vain.answered()
            raise as_fault(error) from error
        self._note_answer(script, queue)
        return sent_at, answer

    def ask_all(self, link: Link, asks: Sequence[Ask]) -> tuple[float, list[Any]]:
        if len(asks) == 1:
            sent_at, answer = self.ask(link, *asks[0])
            return sent_at, [answer]
        calls = [(script, [base(queue)], self._words(link, script, queue, args)) for script, queue, args in asks]
        sent_at = self._boot()
        answers = link.pipeline(calls, self._read_limit)
        for answer, (script, queue, _) in zip(answers, asks, strict=True):
            if isinstance(answer, ServerError):
                self.vain.answered()
                raise as_fault(answer)
            self._note_answer(script, queue)
        return sent_at, answers

    def command(self, link: Link, *words: Word, key: bytes) -> Any:
        return link.command(*words, limit=self._read_limit, key=key)

    def _words(
        self, link: Link, script: Script, queue: str, args: Sequence[Word], seconds: float = 0.0
    ) -> Sequence[Word]:
        """Return what the script is told, which runs in so many seconds at the latest."""
        self.vain.asked(seconds)
        if not script.timed:
            return args
        return [link.run_of(base(queue), self._read_limit), self._pulse.quiet(queue, seconds), *args]

    def _note_answer(self, script: Script, queue: str) -> None:
        self.vain.answered()
        if script.timed:
            self._pulse.answered(queue)


class OwnLine:
    """A line over a link of its own; one exchange at a time.

    `beside`: another line of the same process, whose waiting counts as well.  For `first` see `Pulse`.
    """

    def __init__(
        self, link: Link, clock: Clock, read_limit: float, first: str = "", beside: OwnLine | None = None
    ) -> None:
        self.link = link
        vain = None if beside is None else beside._asking.vain
        self._asking: _Asking = _Asking(clock, read_limit, first, vain)
        self._lock = threading.Lock()

    def ask(self, script: Script, queue: str, args: Sequence[Word]) -> tuple[float, Any]:
        """See `Line`."""
        with self._lock:
            return self._asking.ask(self.link, script, queue, args)

    def ask_when_woken(self, script: Script, queue: str, args: Sequence[Word], seconds: float) -> tuple[float, Any]:
        """Run a script once there may be something to take in the queue, or so many seconds are over; as `ask`."""
        with self._lock:
            return self._asking.ask_when_woken(self.link, script, queue, args, seconds)

    def ask_all(self, asks: Sequence[Ask]) -> tuple[float, list[Any]]:
        """See `Line`."""
        with self._lock:
            return self._asking.ask_all(self.link, asks)

    def command(self, *words: Word, key: bytes) -> Any:
        """See `Line`."""
        with self._lock:
            return self._asking.command(self.link, *words, key=key)

    def close(self) -> None:
        """Close for good; what waits in another thread raises ConnectionError."""
        self.link.close()


class PooledLine:
    """A line over the links that a process has for its adds, each lent for one exchange.

    `patience` is the seconds to wait for a link.  `closing` is set before the pool is closed.
    """

    def __init__(
        self, pool: Pool[Link], clock: Clock, read_limit: float, patience: float, closing: threading.Event
    ) -> None:
        self._pool = pool
        self._closing = closing
        self._asking = _Asking(clock, read_limit)
        self._patience = patience

    def ask(self, script: Script, queue: str, args: Sequence[Word]) -> tuple[float, Any]:
        """See `Line`."""
        with self._lent() as link:
            return self._asking.ask(link, script, queue, args)

    def ask_all(self, asks: Sequence[Ask]) -> tuple[float, list[Any]]:
        """See `Line`."""
        with self._lent() as link:
            return self._asking.ask_all(link, asks)

    def command(self, *words: Word, key: bytes) -> Any:
        """See `Line`."""
        with self._lent() as link:
            return self._asking.command(link, *words, key=key)

    @contextmanager
    def _lent(self) -> Iterator[Link]:
        if self._closing.is_set():
            raise ConnectionError("the broker is closed")
        link = self._pool.lend(self._patience)
        try:
            yield link
        except BaseException:
            self._pool.give_up(link)
            raise
        self._pool.give_back(link)


def as_fault(error: ServerError) -> Exception:
    """Return what to raise: a server that cannot write is as good as one that is not there."""
    if error.code in WRITE_ERRORS:
        return ConnectionError(cannot_write(error))
    return error


class Vain:
    """For how long one line has asked without an answer, in seconds of the boot clock."""

    def __init__(self, clock: Clock) -> None:
        self._boot = clock.boot
        self._before = 0.0
        self._overdue: float | None = None

    def asked(self, seconds: float = 0.0) -> None:
        """Note a try, which may take so many seconds; it may be a further one for what is still unanswered."""
        if self._overdue is None:
            self._overdue = self._boot() + seconds

    def answered(self) -> None:
        """Note an answer."""
        self._before, self._overdue = self.total(), None

    def total(self) -> float:
        """Return the seconds of all that was, and is, asked in vain."""
        overdue = self._overdue
        return self._before if overdue is None else self._before + max(0.0, self._boot() - overdue)


class Pulse:
    """When each queue's server answered this process last, and for how long since then it has asked in vain.

    The scripts are told for how long this process wanted nothing: what is missing in the time since a worker was
    answered last is time in which the server did not answer.  A line asks one queue after the other, and a worker has
    two lines, so while one try keeps it waiting it wants something of all: `vains` are those of its lines.  `first` is
    what the scripts are told before any answer.
    """

    def __init__(self, clock: Clock, vains: Sequence[Vain], first: str = "") -> None:
        self._boot = clock.boot
        self._vains = vains
        self._first = first
        self._answered: dict[str, tuple[float, list[float]]] = {}

    def quiet(self, queue: str, seconds: float = 0.0) -> str:
        """Return the milliseconds since the last answer in which nothing was wanted, `first` before any answer.

        The seconds that this try is to wait at the server are added: nothing is wanted for as long.
        """
        answered = self._answered.get(queue)
        if answered is None:
            return self._first
        at, before = answered
        in_vain = max(vain.total() - then for vain, then in zip(self._vains, before, strict=True))
        return str(max(0, round((self._boot() + seconds - at - in_vain) * 1000)))

    def answered(self, queue: str) -> None:
        """Note an answer."""
        self._answered[queue] = self._boot(), [vain.total() for vain in self._vains]
