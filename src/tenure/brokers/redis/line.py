"""A link that several threads of a process take turns with, and what the scripts are told of its silences."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from tenure.brokers.redis.layout import base
from tenure.brokers.redis.link import Link
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


class Line:
    """Runs scripts in queues, one write at a time.

    `read_limit` is the seconds in which an answer has to be there.
    """

    def __init__(self, link: Link, clock: Clock, read_limit: float) -> None:
        self.link = link
        self._boot = clock.boot
        self._read_limit = read_limit
        self._lock = threading.Lock()
        self._pulse = Pulse(clock)

    def ask(self, script: Script, queue: str, args: Sequence[Word]) -> tuple[float, Any]:
        """Run a script; returns when it was sent (boot clock, right before the write) and its answer.

        Raises ConnectionError, also where the server cannot write now.
        """
        with self._lock:
            words = self._words(script, queue, args)
            sent_at = self._boot()
            try:
                answer = self.link.call(script, [base(queue)], words, self._read_limit)
            except ServerError as error:
                raise as_fault(error) from error
            if script.timed:
                self._pulse.answered(queue)
            return sent_at, answer

    def ask_all(self, asks: Sequence[Ask]) -> tuple[float, list[Any]]:
        """Run scripts in several queues with one write for each server; raises as `ask` does."""
        if len(asks) == 1:
            sent_at, answer = self.ask(*asks[0])
            return sent_at, [answer]
        with self._lock:
            calls = [(script, [base(queue)], self._words(script, queue, args)) for script, queue, args in asks]
            sent_at = self._boot()
            answers = self.link.pipeline(calls, self._read_limit)
            for answer, (script, queue, _) in zip(answers, asks, strict=True):
                if isinstance(answer, ServerError):
                    raise as_fault(answer)
                if script.timed:
                    self._pulse.answered(queue)
            return sent_at, answers

    def _words(self, script: Script, queue: str, args: Sequence[Word]) -> Sequence[Word]:
        if not script.timed:
            return args
        quiet = self._pulse.quiet(queue)  # first, for it notes since when the server was wanted
        return [self.link.run_of(base(queue), self._read_limit), quiet, *args]

    def command(self, *words: Word, key: bytes) -> Any:
        """Send one command; raises ConnectionError."""
        with self._lock:
            return self.link.command(*words, limit=self._read_limit, key=key)

    def close(self) -> None:
        """Close for good; what waits in another thread raises ConnectionError."""
        self.link.close()


def as_fault(error: ServerError) -> Exception:
    """Return what to raise: a server that cannot write is as good as one that is not there."""
    if error.code in WRITE_ERRORS:
        return ConnectionError(f"the server cannot write now: {error.text}")
    return error


class Pulse:
    """When a queue's server answered this line last, and since when it has been asked in vain.

    The scripts are told for how long this process wanted nothing: what is missing in the time since a worker was
    answered last is time in which the server did not answer.
    """

    def __init__(self, clock: Clock) -> None:
        self._boot = clock.boot
        self._answered: dict[str, float] = {}
        self._wanted: dict[str, float] = {}

    def quiet(self, queue: str) -> str:
        """Return the milliseconds between the last answer and the first try after it, "" before any answer."""
        wanted = self._wanted.setdefault(queue, self._boot())
        answered = self._answered.get(queue)
        return "" if answered is None else str(int((wanted - answered) * 1000))

    def answered(self, queue: str) -> None:
        """Note an answer."""
        self._answered[queue] = self._boot()
        self._wanted.pop(queue, None)
