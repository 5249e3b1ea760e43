"""A clock that a test moves on, so that nothing has to be waited for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta

from tenure.brokers.memory import MemoryClock
from tenure.context import running

_LAST_MOMENT = 253_402_300_799.0
"""Seconds since the epoch at the end of the calendar, 9999-12-31 23:59:59 UTC."""
_MAX_SHOWN = 50


class MovableClock:
    """The machine's clocks plus what they were moved by.

    While freezegun holds the calendar, `move` ticks it instead, so that `datetime.now()` in a task moves along.
    """

    def __init__(self) -> None:
        self._base = MemoryClock()
        self._calendar = 0.0
        self._running = 0.0
        self._watchers: list[Callable[[], None]] = []
        self._guards: list[Callable[[float], AbstractContextManager[None]]] = []

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
        """Let that much time pass at once: jobs fall due, time limits and leases run out; nothing is run by it.

        A worker inside of `running()` keeps its leases, as one does that lives: they run out only where a task itself
        moves the clock.  Raises ValueError for a time below zero, none at all (NaN) or one that leads beyond the year
        9999, and TypeError for what is neither a number of seconds nor a timedelta.  The clock stays as it was then.
        """
        by = self._checked(seconds)
        with ExitStack() as guards:
            if running() is None:
                for guard in self._guards:
                    guards.enter_context(guard(by))
            self._running += by  # first: what is handed out between the two is not to lose its lease by the second
            if not _tick_frozen(by):
                self._calendar += by
        for watcher in self._watchers:
            watcher()

    def _checked(self, given: float | timedelta) -> float:
        """Return the seconds to move by; a clock that was moved wrongly once would be wrong for good."""
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"move({given!r}): give seconds as a number, or a timedelta")
        if seconds < 0:
            raise ValueError(f"move({_shown(given)}): time goes on only; give 0 or more seconds")
        left = _LAST_MOMENT - self.wall()
        if not seconds <= left:  # NaN is not either
            raise ValueError(
                f"move({_shown(given)}): the clock can go on by at most {max(0.0, left):.0f} seconds from here, to the "
                "end of the year 9999; give a number of seconds between 0 and that"
            )
        return float(seconds)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after every move."""
        self._watchers.append(watcher)

    @contextmanager
    def guarded(self, guard: Callable[[float], AbstractContextManager[None]]) -> Iterator[None]:
        """Have each move inside of this block made inside of what `guard` makes of its seconds; but those of tasks."""
        self._guards.append(guard)
        try:
            yield
        finally:
            self._guards.remove(guard)


def _shown(given: object) -> str:
    """A value for an error's text; an int may have thousands of digits, or more than Python prints."""
    try:
        text = repr(given)
    except ValueError:
        return "an int of thousands of digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _tick_frozen(seconds: float) -> bool:
    """Move freezegun's calendar, if there is one and it is frozen."""
    factories = getattr(sys.modules.get("freezegun.api"), "freeze_factories", None)
    if not factories:
        return False
    factories[-1].tick(timedelta(seconds=seconds))
    return True
