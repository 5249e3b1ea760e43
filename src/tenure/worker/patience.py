"""How a service of the worker waits after a failure: it never gives up, and it never spins."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tenure.clock import Clock
from tenure.errors import ConfigError
from tenure.retry import reconnect_delay

logger = logging.getLogger("tenure.worker")


class Patience:
    """Counts the failures in a row and waits longer after each; `roll` gives the jitter, 0..1."""

    def __init__(self, clock: Clock, roll: Callable[[], float]) -> None:
        self._clock = clock
        self._roll = roll
        self._failures = 0
        self._said = ""
        self._broke_off = ""  # what a failed connection keeps from going on

    def reset(self) -> None:
        """Forget the failures: it went well; where the connection had failed, that is logged too."""
        if self._failures:
            self._failures = 0
            self._said = ""
        if self._broke_off:
            logger.info("the broker answers again; %s goes on", self._broke_off)
            self._broke_off = ""

    def wait(self, error: BaseException, what: str, stopped: threading.Event) -> None:
        """Log the failure and wait before the next try, or until `stopped` is set."""
        self._failures += 1
        if isinstance(error, ConfigError):  # the broker will have nothing of this worker until somebody changes that
            if self._said != str(error):
                self._said = str(error)
                logger.error("the broker refuses this worker while %s: %s", what, error)
        elif not isinstance(error, ConnectionError):
            logger.error("an unexpected error while %s; trying again", what, exc_info=error)
        elif not self._broke_off:
            self._broke_off = what
            logger.warning("the connection failed while %s (%s); trying again", what, error)
        self._clock.wait(stopped, reconnect_delay(self._failures, self._roll()))
