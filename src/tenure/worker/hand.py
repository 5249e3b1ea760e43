"""How many very short jobs a process may have in hand beyond its free slots: a few milliseconds' worth."""

from __future__ import annotations

MOMENT = 0.004
"""Seconds for which what is in hand lasts, at the pace of the last jobs."""
SHORT = 0.001
"""Seconds below which jobs have to be, on average: waiting for the next one would cost as much as running it."""
MOST = 128

_GLANCE = 0.001


class Hand:
    """Measures the pace of a process.

    `ended` is called from any thread, and may miss one now and then: this is an estimate.  The rest belongs to the
    taker's thread.  Times are seconds of the boot clock.
    """

    def __init__(self) -> None:
        self._jobs = 0
        self._seconds = 0.0
        self._seen = (0, 0.0, 0.0)
        self._size = 0

    def ended(self, seconds: float) -> None:
        """A function has run for so many seconds."""
        self._jobs += 1
        self._seconds += seconds

    def size(self, now: float) -> int:
        """Return how many jobs may be in hand; 0: none has ended for a while, or they are not very short."""
        jobs_before, seconds_before, before = self._seen
        if now - before >= _GLANCE:
            jobs, seconds = self._jobs, self._seconds
            self._seen = (jobs, seconds, now)
            jobs -= jobs_before
            short = jobs and (seconds - seconds_before) / jobs < SHORT
            self._size = min(MOST, int(jobs * MOMENT / (now - before))) if short else 0
        return self._size
