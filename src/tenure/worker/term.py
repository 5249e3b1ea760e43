"""Until when a job's function may run, and as what it is ended then."""

from __future__ import annotations

from math import inf

from tenure.context import Hold
from tenure.errors import Interrupt, LeaseLost, Terminated, TimeLimitExceeded


class Term:
    """The end of one execution: its lease is lost, if it `heeds` that, its time limit is over, or it is terminated."""

    __slots__ = ("_heeds", "_hold", "_limit")

    def __init__(self, hold: Hold, heeds: bool) -> None:
        self._hold = hold
        self._heeds = heeds
        self._limit = hold.limit()

    def earliest(self, deadline: float) -> float:
        """Return before when nobody need ask, unless told to; `deadline` is the one that its lease began with."""
        return min(deadline, self._limit) if self._heeds else self._limit

    def due(self) -> float | None:
        """Return when it is over, in seconds of the boot clock; None: it is."""
        deadline = self._lease_end()
        return None if deadline is None or self._hold.terminated() else min(deadline, self._limit)

    def kind(self) -> type[Interrupt]:
        """Return as what the function is ended, now that it is over."""
        if self._hold.terminated():
            return Terminated
        deadline = self._lease_end()
        return LeaseLost if deadline is None or deadline < self._limit else TimeLimitExceeded

    def missed(self, moment: float) -> type[Interrupt] | None:
        """Return as what the function ought to have been ended by this moment; None: it was in time."""
        if self._hold.terminated_at() <= moment:
            return Terminated
        return TimeLimitExceeded if self._limit <= moment else None

    def overrun(self) -> None:
        """Take note that the function goes on after its end."""
        self._hold.overrun()

    def _lease_end(self) -> float | None:
        return self._hold.deadline() if self._heeds else inf
