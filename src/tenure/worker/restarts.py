"""When a worker process that has ended is followed by the next one."""

from __future__ import annotations

_SOON = 5.0
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 2.0


class Restarts:
    """When the next process may be started: at once, but later and later while they die soon after their start."""

    def __init__(self) -> None:
        self.next_at = 0.0
        self._delay = 0.0

    def due(self, now: float) -> bool:
        """Whether a missing process may be started now."""
        return now >= self.next_at

    def ended(self, started_at: float, now: float, failed: bool = False) -> None:
        """Take note of a process that has ended; `failed`: without having worked, however long its start took."""
        if now - started_at >= _SOON and not failed:
            self._delay = 0.0
            self.next_at = now
            return
        self.next_at = now + self._delay
        self._delay = min(_LONGEST_DELAY, self._delay * 2 or _FIRST_DELAY)
