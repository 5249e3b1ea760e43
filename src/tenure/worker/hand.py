"""How many very short jobs a process may have in hand beyond its free slots: a few milliseconds' worth."""

from __future__ import annotations

MOMENT = 0.004
"""Seconds for which what is in hand lasts, at the pace of the last jobs."""
SHORT = 0.001
"""Seconds below which jobs have to be, on average: waiting for the next one would cost as much as running it."""
MOST = 128
FEW = 4
"""Jobs below which nothing is in hand: at that pace a slot that waits for the next take costs next to nothing."""
GLANCE = 0.02
"""Seconds at least over which the pace is taken, which is as long as what is in hand may wait: so a burst of short jobs
among longer ones, or between two turns of a process that has to share its processor, is no pace."""


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
        """Return how many jobs may be in hand; 0: few have ended for a while, or they are not very short."""
        jobs_before, seconds_before, before = self._seen
        if now - before >= GLANCE:
            jobs, seconds = self._jobs, self._seconds
            self._seen = (jobs, seconds, now)
            jobs -= jobs_before
            short = jobs and (seconds - seconds_before) / jobs < SHORT
            size = int(jobs * MOMENT / (now - before)) if short else 0
            self._size = min(MOST, size) if size >= FEW else 0
        return self._size
