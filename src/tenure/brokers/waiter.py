"""One of the callers that wait for jobs together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tenure.broker import JobState
from tenure.errors import BrokerUnavailable
from tenure.wire.commands import OVER


class Waiter:
    """One caller: its jobs, and what is known of them.  `tell` is called once it is served, in place of `wake`."""

    def __init__(
        self, ids: Sequence[str], since: float, seconds: float | None, tell: Callable[[], None] | None = None
    ) -> None:
        self.ids = ids
        self.since = since
        self.deadline = float("inf") if seconds is None else since + seconds
        self.wake = threading.Event()
        self.asked_for = False
        self.missing = dict.fromkeys(ids)
        """Jobs of which no last state is known yet."""
        self._tell = tell
        self._known: dict[str, JobState] = {}
        self._one_is_over = False
        self._error: Exception | None = None
        self._distinct = len(self.missing)

    @property
    def sleeps(self) -> bool:
        """Whether a thread sleeps here, which can be woken to lead."""
        return self._tell is None

    @property
    def knows_nothing(self) -> bool:
        """Whether it could not even say now what its jobs are."""
        return len(self._known) < self._distinct

    @property
    def served(self) -> bool:
        """Whether there is something to return or to raise."""
        return self._error is not None or (self._one_is_over and not self.knows_nothing)

    def note(self, state: JobState) -> None:
        self._known[state.id] = state
        if state.state in OVER:
            self._one_is_over = True
            self.missing.pop(state.id, None)

    def fail(self, error: Exception) -> None:
        self._error = error
        self.call()

    def call(self) -> None:
        if self._tell is None:
            self.wake.set()
        else:
            self._tell()

    def answer(self) -> list[JobState]:
        """The state of each job; raises BrokerUnavailable when there was no answer."""
        if self._error is not None:
            raise self._error
        if self.knows_nothing:
            raise BrokerUnavailable("the server did not answer in time; is `tenure server` running there?")
        return [self._known[id] for id in self.ids]
