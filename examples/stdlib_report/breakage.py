"""What the demo breaks: every connection once, and a worker process when it is surely in the middle of a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from examples.stdlib_report import marks
from tenure.faults import Proxy, process

CUT_AT = 0.5
"""The part of the jobs that are added when the connections are cut."""

KILL_AT = 0.3
"""The part of the jobs that are done when the worker process is killed."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A worker process that was killed; it ran no instruction after `at` (seconds of `time.monotonic()`)."""

    pid: int
    at: float
    jobs: int


class Breakage:
    """Cuts and kills once each, when enough of `total` jobs are added and done; `say` gets a line about each.

    `cut` is how many connections were cut, `killed` the process that was killed; None: not yet.
    """

    def __init__(self, proxy: Proxy, folder: Path, total: int, say: Callable[[str], None]) -> None:
        self.cut: int | None = None
        self.killed: Killed | None = None
        self._proxy = proxy
        self._folder = folder
        self._total = total
        self._say = say

    def look(self, added: int, done: int) -> None:
        """Break what is to be broken by now."""
        if self.cut is None and added >= CUT_AT * self._total:
            self.cut = self._proxy.cut()
            self._say(f"cut all {self.cut} connections of the producer and the worker")
        if self.killed is None and done >= KILL_AT * self._total:
            self.killed = kill_in_mid_job(self._folder)
            if self.killed is not None:
                jobs = "a job" if self.killed.jobs == 1 else f"{self.killed.jobs} jobs"
                self._say(f"killed worker process {self.killed.pid} (SIGKILL) in the middle of {jobs}")


def kill_in_mid_job(folder: Path) -> Killed | None:
    """Kill a worker process that runs a job; returns None when there was none, then try again a little later.

    It is frozen first, so that the job which the marks show cannot end between the look and the kill.
    """
    for pid in sorted({run.pid for run in _running(folder)}):
        try:
            killed = _killed_if_busy(folder, pid)
        except ProcessLookupError:
            continue
        if killed is not None:
            return killed
    return None


def _running(folder: Path) -> list[marks.Run]:
    return [run for run in marks.runs(marks.read(folder)) if run.end is None]


def _killed_if_busy(folder: Path, pid: int) -> Killed | None:
    process.freeze(pid)
    jobs = 0
    try:
        _wait_for_standstill(pid)
        at = time.monotonic()
        jobs = sum(run.pid == pid for run in _running(folder))
    finally:
        if not jobs:
            process.thaw(pid)
    if not jobs:
        return None
    process.kill(pid)  # as it stands: its number may be nobody's right after this
    return Killed(pid, at, jobs)


def _wait_for_standstill(pid: int, seconds: float = 5.0) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if sys.platform != "linux":  # where nothing tells
            time.sleep(0.2)
            return
        if process.state(pid) in ("T", None):
            return
        time.sleep(0.001)
