"""Callers that cannot be blocked, those of event loops: a thread looks at their jobs for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue

from tenure.broker import JobState
from tenure.brokers.redis.ends import Ends, Waiter
from tenure.clock import Clock
from tenure.errors import BrokerUnavailable
from tenure.retry import reconnect_delay
from tenure.wire.commands import OVER

PATIENCE = 30.0
"""Seconds without any answer after which a caller that waits is told that the server cannot be reached."""
LOOK_AGAIN = 15.0
"""Seconds after which it is looked at jobs again that nothing was told of: in a queue without workers time does not
pass by itself, and what has expired there is found by whoever looks."""


class Watcher(Waiter):
    """One such caller: what is known of its jobs, and how it is told that there is something to know."""

    def __init__(self, ids: Sequence[str], look: Callable[[Watcher], None], tell: Callable[[], None]) -> None:
        super().__init__(ids, lambda: look(self))
        self.in_order = tuple(ids)
        self._tell = tell
        self._states: list[JobState] = []
        self._error: Exception | None = None

    def note(self, states: list[JobState]) -> None:
        """Keep what is known, and tell where one of the jobs is over."""
        self._states = states
        if any(state.state in OVER for state in states):
            self._tell()

    def fail(self, error: Exception) -> None:
        """Tell that there was no answer."""
        self._error = error
        self._tell()

    def answer(self) -> list[JobState]:
        """The state of each job; raises BrokerUnavailable when there was no answer."""
        if self._error is not None:
            raise self._error
        if not self._states:
            raise BrokerUnavailable("the server did not answer in time")
        return self._states


class Watching:
    """Has `tell` called for each watcher; `ask` returns states and registers for their ends, or raises ConnectionError.

    The thread is there as long as somebody watches.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[str]], list[JobState]],
        ends: Ends,
        clock: Clock,
        roll: Callable[[], float],
        closing: threading.Event,
    ) -> None:
        self._ask = ask
        self._ends = ends
        self._clock = clock
        self._roll = roll
        self._closing = closing
        self._lock = threading.Lock()
        self._watchers: dict[Watcher, None] = {}
        self._to_look: SimpleQueue[Watcher | None] = SimpleQueue()
        self._runs = False

    def watch(
        self, ids: Sequence[str], tell: Callable[[], None]
    ) -> tuple[Callable[[], list[JobState]], Callable[[], None]]:
        """Return what gives the states, and what has to be called in the end."""
        watcher = Watcher(ids, self._to_look.put, tell)
        with self._lock:
            self._watchers[watcher] = None
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="tenure-watch", daemon=True).start()
        self._ends.enter(watcher)
        watcher.wake()
        return watcher.answer, lambda: self._stop(watcher)

    def close(self) -> None:
        """Tell all; the broker's `closing` is set before."""
        self._to_look.put(None)

    def _stop(self, watcher: Watcher) -> None:
        self._ends.leave(watcher)
        with self._lock:
            self._watchers.pop(watcher, None)
            last = not self._watchers
        if last:
            self._to_look.put(None)

    def _run(self) -> None:
        failures, since = 0, 0.0
        while self._goes_on():
            waiting = self._next()
            try:
                self._look(waiting)
                failures = 0
            except ConnectionError as error:
                failures += 1
                since = self._clock.boot() if failures == 1 else since
                if self._clock.boot() - since >= PATIENCE or self._closing.is_set():
                    for watcher in waiting:
                        watcher.fail(BrokerUnavailable(str(error)))
                    continue
                self._clock.wait(self._closing, reconnect_delay(failures, self._roll()))
                for watcher in waiting:
                    watcher.wake()

    def _goes_on(self) -> bool:
        """Whether somebody watches still; else the thread ends."""
        with self._lock:
            if self._watchers and not self._closing.is_set():
                return True
            self._runs = False
            left = list(self._watchers)
        for watcher in left:
            watcher.fail(BrokerUnavailable("the broker is closed"))
        return False

    def _next(self) -> list[Watcher]:
        """Wait for the next ones that are to be looked at, all that there are; at times that is everybody."""
        try:
            found = dict.fromkeys([self._to_look.get(timeout=LOOK_AGAIN)])
        except Empty:
            with self._lock:
                return list(self._watchers)
        while not self._to_look.empty():
            found[self._to_look.get()] = None
        with self._lock:
            return [watcher for watcher in found if watcher in self._watchers]

    def _look(self, watchers: Iterable[Watcher]) -> None:
        watchers = list(watchers)
        ids = list(dict.fromkeys(id for watcher in watchers for id in watcher.in_order))
        states = dict(zip(ids, self._ask(ids) if ids else (), strict=True))
        for watcher in watchers:
            watcher.note([states[id] for id in watcher.in_order])
