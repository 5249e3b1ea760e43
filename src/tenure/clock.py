"""The clocks, in one place, so that tests can pass in their own.

`wall` is the calendar, for `run_at`, `expires` and for people.  `boot` runs on while the machine sleeps and is never
set by hand: own deadlines and `add_timeout` are measured with it.  `mono` is the server's lease time.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

RHO = 0.001
"""Largest difference in rate between a worker's and the server's clock, as a part of one."""

GUARD = 0.05
"""Seconds that a worker gives up before its own deadline would be exact."""


class Clock(Protocol):
    """Seconds from three clocks, and a wait that goes by them."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    def boot(self) -> float:
        """Seconds of the clock for own deadlines."""

    def mono(self) -> float:
        """Seconds of the clock for leases."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for `event` up to `seconds`; True when it is set."""


if hasattr(time, "CLOCK_BOOTTIME"):

    def boot() -> float:
        """Seconds since the machine was started, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # macOS and Windows have no such clock under this name
    boot = time.monotonic


class SystemClock:
    """The machine's own clocks."""

    wall = staticmethod(time.time)
    mono = staticmethod(time.monotonic)
    boot = staticmethod(boot)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for `event` up to `seconds`; True when it is set."""
        return event.wait(seconds)


def own_deadline(sent_at: float, hold: float) -> float:
    """Return when this process must give the work up: before the server's lease can have ended.

    `sent_at` is `boot()` read before the write of exactly that line; `hold` is the server's answer in seconds.
    """
    return sent_at + hold * (1 - RHO) - GUARD
