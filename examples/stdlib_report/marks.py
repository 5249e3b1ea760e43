"""Start and end marks that the task writes itself, so that what ran when is known without asking Tenure."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

FILE = "marks.jsonl"


@dataclass(frozen=True, slots=True)
class Mark:
    """A hand-out's start or end; `at` is `time.monotonic()`, which all processes of a machine share (seconds)."""

    what: Literal["start", "end"]
    job: str
    fence: int
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Run:
    """One execution, from its start mark to its end mark; `end` is None where there is no end mark."""

    job: str
    fence: int
    pid: int
    start: float
    end: float | None


@contextmanager
def marked(folder: Path, job: str, fence: int) -> Iterator[None]:
    """Write a start mark before and an end mark after the work; none at the end of a process that was killed."""
    _write(folder, Mark("start", job, fence, os.getpid(), time.monotonic()))
    try:
        yield
    finally:
        _write(folder, Mark("end", job, fence, os.getpid(), time.monotonic()))


def _write(folder: Path, mark: Mark) -> None:
    """Append one line with one write, so that marks of several processes never mix."""
    line = json.dumps(asdict(mark)).encode() + b"\n"
    handle = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def read(folder: Path) -> list[Mark]:
    """Return all marks so far, in the order in which they were written."""
    try:
        text = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return []
    whole_lines = text[: text.rfind(b"\n") + 1]
    return [Mark(**json.loads(line)) for line in whole_lines.splitlines()]


def runs(marks: Sequence[Mark]) -> list[Run]:
    """Put start and end marks together."""
    ends = {(mark.job, mark.fence): mark.at for mark in marks if mark.what == "end"}
    return [
        Run(mark.job, mark.fence, mark.pid, mark.at, ends.get((mark.job, mark.fence)))
        for mark in marks
        if mark.what == "start"
    ]


def by_job(all_runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return each job's runs, in the order of their fences."""
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(all_runs, key=lambda run: run.fence):
        found[run.job].append(run)
    return dict(found)


def overlaps(all_runs: Sequence[Run], killed_at: Mapping[int, float]) -> int:
    """Return how many runs began before the same job's run before them had ended.

    A run without an end mark ended when its process was killed; `killed_at` tells when, by process id.  One whose
    process was not killed never ended.
    """

    def end(run: Run) -> float:
        return run.end if run.end is not None else killed_at.get(run.pid, float("inf"))

    return sum(end(before) > after.start for each in by_job(all_runs).values() for before, after in pairwise(each))
