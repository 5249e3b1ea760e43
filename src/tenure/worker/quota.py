"""After how much work, or at what size, a worker process is replaced by a fresh one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tenure.clock import Clock
from tenure.message import Delivery
from tenure.worker.room import Room
from tenure.worker.table import Table

J = TypeVar("J")

_PAUSE = 0.02
_NEARLY = 0.9
"""The part of the memory limit at which the next process is wanted."""
_MIB = 1024 * 1024
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may be given: so many jobs, and jobs as long as it has so many bytes of memory; None: no end."""

    jobs: int | None = None
    memory: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is any."""
        return self.jobs is not None or self.memory is not None


class Quota(Generic[J]):
    """Stands between the taker and the slots of one process, and lets it take no more than its limits allow.

    `worn` is called once, with the reason, when a fresh process is wanted: a little before the limit, so that no time
    is lost while that one imports the app (`started_at`: since when this one did, by the boot clock).  A process that
    replaces another leaves as many slots unused as that one still needs: together they never run more jobs than one.
    """

    def __init__(
        self,
        limits: Limits,
        table: Table,
        free: Callable[[float], Room],
        deliver: Callable[[Sequence[Delivery]], J | None],
        worn: Callable[[str], None],
        clock: Clock,
        started_at: float,
        resident: Callable[[], int] | None = None,
    ) -> None:
        self._limits = limits
        self._table = table
        self._free = free
        self._deliver = deliver
        self._worn = worn
        self._clock = clock
        self._started_at = started_at
        self._resident = resident or resident_bytes
        self._ready_at: float | None = None
        self._given = 0
        self._told = False
        self._never = threading.Event()

    def room(self, rest: float) -> Room:
        """Wait for a free slot and return what may be taken; with limit 0: ask again."""
        if self._ready_at is None:
            self._ready_at = self._clock.boot()
        room = self._free(rest)
        if room.limit < 1:
            return room
        limit = min(room.limit - self._table.lent(), self._left(room.limit))
        if limit < 1 or self._is_too_large():
            self._clock.wait(self._never, _PAUSE)
            return Room(0)
        return room._replace(limit=limit)

    def deliver(self, deliveries: Sequence[Delivery]) -> J | None:
        """Hand on what was taken."""
        self._given += len(deliveries)
        mine = self._deliver(deliveries)
        jobs, ready_at = self._limits.jobs, self._ready_at
        if jobs is not None and ready_at is not None:
            working = self._clock.boot() - ready_at
            if is_nearly_spent(jobs, self._given, working, ready_at - self._started_at):
                self._tell(f"--max-jobs-per-process {jobs}")
        return mine

    def _left(self, without: int) -> int:
        return without if self._limits.jobs is None else self._limits.jobs - self._given

    def _is_too_large(self) -> bool:
        """Whether the memory is above its limit; every process is given a job at least, or none would ever do any."""
        limit = self._limits.memory
        if limit is None or not self._given:
            return False
        size = self._resident()
        if size > limit * _NEARLY:
            self._tell(f"{mib(size)} of memory, --max-memory-per-process {mib(limit)}")
        return size > limit

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._worn(why)


def is_nearly_spent(jobs: int, given: int, working: float, starting: float) -> bool:
    """Whether a process that was given so many of its `jobs` is to be replaced now.

    That is when, at the pace of its `working` time, it has no more left than lasts while two are `starting` (seconds),
    but not in the first half: a fast beginning tells little, and the next process costs memory while it waits.
    """
    left = jobs - given
    return left < 1 or (left <= jobs / 2 and left * working / given <= 2 * starting)


def memory_warnings(limits: Limits, resident: int) -> list[str]:
    """Return a line that warns of a limit which a process is above before it has worked, or nothing."""
    if limits.memory is None or resident <= limits.memory * _NEARLY:
        return []
    line = (
        f"a process of this app has {mib(resident)} of memory when it starts, too much for "
        f"--max-memory-per-process {mib(limits.memory)}: each is replaced after its first jobs; give a higher limit"
    )
    return [line]


def mib(size: int) -> str:
    """Return a size for people."""
    if size < _MIB // 10:
        return f"{size}B"
    return f"{size / _MIB:.0f}MiB" if size >= 10 * _MIB else f"{size / _MIB:.1f}MiB"


def resident_bytes() -> int:
    """Return how much memory this process has in use, in bytes; where the system tells no more, how much at most."""
    if _STATM.exists():
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)
