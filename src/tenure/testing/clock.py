"""A clock that a test moves on, so that nothing has to be waited for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta

from tenure.brokers.memory import MemoryClock


class MovableClock:
    """The machine's clocks plus what they were moved by.

    While freezegun holds the calendar, `move` ticks it instead, so that `datetime.now()` in a task moves along.
    """

    def __init__(self) -> None:
        self._base = MemoryClock()
        self._calendar = 0.0
        self._running = 0.0
        self._watchers: list[Callable[[], None]] = []

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._base.wall() + self._calendar

    def boot(self) -> float:
        """Seconds of the clock for own deadlines."""
        return self._base.boot() + self._running

    def mono(self) -> float:
        """Seconds of the clock for leases."""
        return self._base.mono() + self._running

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for `event` up to so many real seconds; True when it is set."""
        return self._base.wait(event, seconds)

    def move(self, seconds: float | timedelta) -> None:
        """Let that much time pass at once: jobs fall due, leases run out; nothing is run by it.

        Raises ValueError for a time below zero.
        """
        by = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if by < 0:
            raise ValueError(f"move({seconds!r}): time goes on only; give 0 or more seconds")
        if not _tick_frozen(by):
            self._calendar += by
        self._running += by
        for watcher in self._watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after every move."""
        self._watchers.append(watcher)


def _tick_frozen(seconds: float) -> bool:
    """Move freezegun's calendar, if there is one and it is frozen."""
    factories = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if not factories:
        return False
    factories[-1].tick(timedelta(seconds=seconds))
    return True
