"""Asks the broker every second whether it answers, for a worker that tells its health.

Takes and extends would not do: while every slot is busy the former are not sent, and the latter seldom.
"""

from __future__ import annotations

import threading

from tenure.broker import Extend, Keeper
from tenure.clock import Clock
from tenure.errors import ConfigError, TenureError

HEARTBEAT = 1.0
"""Seconds between two questions, at most."""

_AFTER_A_FAILURE = 0.25
_NOBODYS = Extend(b"0" * 32 + b":1")
"""An extend of a hand-out that never was: it is answered, and changes nothing."""


def check_broker(keeper: Keeper) -> None:
    """Ask the broker once, at a worker's start; one that is not there is waited for later.

    Raises ConfigError where it refuses this worker for good: a password, or a setting that would lose jobs.
    """
    try:
        keeper.extend([_NOBODYS])
    except ConfigError:
        raise
    except (OSError, TenureError):
        return


class Heartbeat:
    """A thread with a line of its own to the broker.

    `last` is when it answered last (seconds of the boot clock, 0.0: never) and why it has not since.
    """

    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self.last = (0.0, "")
        self._keeper = keeper
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tenure-heartbeat", daemon=True)

    def start(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that waits ends."""
        self._stopped.set()
        self._keeper.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._clock.wait(self._stopped, self.beat())

    def beat(self) -> float:
        """Ask once, and return the seconds until the next time."""
        try:
            self._keeper.extend([_NOBODYS])
        except Exception as error:  # noqa: BLE001  (whatever it is, the broker gives no answer)
            self.last = (self.last[0], str(error) or type(error).__name__)
            return _AFTER_A_FAILURE
        self.last = (self._clock.boot(), "")
        return HEARTBEAT
