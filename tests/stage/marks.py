"""Marks that tasks write themselves, and the check that no two executions of a job ran at once.

One line a mark, each written with one call to a file opened for appending, so that no two mix.  While a task takes
its time it writes a `beat` every few milliseconds: an execution that was killed has no end, and it ran at least until
its last mark.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tenure import clock, current_job

FOLDER = "TENURE_TEST_FOLDER"
GO = "go"
BEAT = 0.02
MARGIN = 0.1


def folder() -> Path:
    """Return the folder of the test that runs here."""
    return Path(os.environ[FOLDER])


def _write(what: str) -> None:
    line = f"{what} {current_job.id} {current_job.fence} {os.getpid()} {clock.boot():.6f}\n"
    file = os.open(folder() / "marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def beat() -> None:
    """Mark that the execution goes on."""
    _write("beat")


@contextmanager
def marked(seconds: float = 0.0, until: Path | None = None) -> Iterator[None]:
    """Mark the start and the end of an execution that takes `seconds`.

    With `until` it goes on until that file is there, and only the job's first hand-out takes time at all.  It stops
    when the lease is about to be lost, as every task that another one must not meet has to.
    """
    _write("start")
    end = clock.boot() + seconds
    while clock.boot() < end and not (until and (current_job.fence > 1 or until.exists())):
        deadline = current_job.deadline
        if deadline is None or clock.boot() >= deadline - MARGIN:
            break
        time.sleep(BEAT)
        beat()
    try:
        yield
    finally:
        _write("end")


@dataclass
class Execution:
    """One execution as its marks tell it; times are seconds of the boot clock, `last` is that of its last mark."""

    job: str
    fence: int
    pid: int
    start: float
    last: float
    ended: bool = False


def executions(place: Path) -> list[Execution]:
    """Read the marks below `place`, in the order of their starts."""
    file = place / "marks"
    found: dict[tuple[str, int], Execution] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        what, job, fence, pid, at = line.split()
        key = job, int(fence)
        if what == "start":
            assert key not in found, f"hand-out {fence} of job {job} was started twice"
            found[key] = Execution(job, int(fence), int(pid), float(at), float(at))
        else:
            found[key].last = float(at)
            found[key].ended = what == "end"
    return sorted(found.values(), key=lambda one: one.start)


def started(place: Path) -> int:
    """Return how many executions were started so far below `place`; cheap enough to be asked again and again."""
    file = place / "marks"
    return file.read_bytes().count(b"start ") if file.exists() else 0


def overlaps(place: Path) -> list[tuple[Execution, Execution]]:
    """Return the pairs of executions of one job of which the later began before the earlier had ended."""
    jobs: defaultdict[str, list[Execution]] = defaultdict(list)
    for execution in executions(place):
        jobs[execution.job].append(execution)
    return [
        (earlier, later)
        for runs in jobs.values()
        for earlier, later in pairwise(runs)
        if later.start < earlier.last or later.fence <= earlier.fence
    ]
