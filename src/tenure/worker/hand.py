"""How many very short jobs a process may have in hand beyond its free slots: a few milliseconds' worth."""

from __future__ import annotations

MOMENT = 0.004
"""Seconds for which what is in hand lasts, at the pace of the last jobs."""
SHORT = 0.001
"""Seconds below which jobs have to be, on average: waiting for the next one would cost as much as running it."""
MOST = 128
FIRST_REST, LONGEST_REST = 0.1, 30.0
"""Seconds for which there is nothing in hand once something had to go back; twice as long each time anew."""

_GLANCE = 0.001


class Hand:
    """Measures the pace of a process.

    `ended` is called from any thread, and may miss one now and then: this is an estimate.  The rest belongs to the
    taker's thread.  Times are seconds of the boot clock.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._jobs = 0
        self._seconds = 0.0
        self._seen = (0, 0.0, 0.0)
        self._size = 0
        self._rest = 0.0
        self._rests_until = 0.0

    def ended(self, seconds: float) -> None:
        """A function has run for so many seconds."""
        self._jobs += 1
        self._seconds += seconds

    def went_back(self, now: float) -> None:
        """What was in hand did not come to its start in time: short jobs and long ones come by turns."""
        self._rest = min(LONGEST_REST, 2 * self._rest or FIRST_REST)
        self._rests_until = now + self._rest

    def size(self, now: float) -> int:
        """Return how many jobs may be in hand; 0: few have ended, or they are not very short.

        Where not even one a slot would end within the moment, there are longer ones in some of the slots, and what is
        in hand would wait behind those.  A job that ended alone tells nothing of the next ones.
        """
        jobs_before, seconds_before, before = self._seen
        if now - before >= _GLANCE:
            jobs, seconds = self._jobs, self._seconds
            self._seen = (jobs, seconds, now)
            jobs -= jobs_before
            short = jobs > 1 and (seconds - seconds_before) / jobs < SHORT
            size = min(MOST, int(jobs * MOMENT / (now - before))) if short else 0
            self._size = size if size >= self._slots else 0
        if now < self._rests_until:
            return 0
        if self._rest and now >= self._rests_until + self._rest:
            self._rest = 0.0
        return self._size
