"""How fast a worker empties a queue, what that costs it, and what stays on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

from tenure import App, Signature
from tenure.inspection import Inspection
from tests.benchmarks import coroutines, tasks
from tests.benchmarks.processes import Durability, cpu_seconds, family, worker
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import Bench, add, client, compare, until_done

QUEUE = "default"
ENDS = 200
"""Jobs at either end of a drain in which the first hand-out and the last done are looked for."""


class Drains:
    """Drains of one queue by a worker that waits: the queue is filled while it is paused."""

    def __init__(self, inspection: Inspection, pid: int, app: App, make: Callable[[int], Signature[Any]]) -> None:
        self.cpu: list[float] = []
        """Seconds of processor time a thousand jobs that the worker has had in each drain, supervisor included."""
        self._inspection, self._pid, self._app, self._make = inspection, pid, app, make
        self._ids: list[str] = []
        add(app, make, ENDS)
        until_done(inspection, ENDS)

    def fill(self, count: int) -> None:
        """Add so many, which wait until the next drain."""
        self._inspection.pause_queue(QUEUE)
        self._ids = add(self._app, self._make, count)

    def drain(self) -> float:
        """Have all that was filled in run, and return the rate by the server's record.

        Counted from the first hand-out to the last done.
        """
        before = self._cpu()
        done = self._inspection.record()["totals"]["done"]
        self._inspection.resume_queue(QUEUE)
        until_done(self._inspection, done + len(self._ids))
        self.cpu.append((self._cpu() - before) / len(self._ids) * 1000)
        return len(self._ids) / spent(self._inspection, self._ids)

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, family(self._pid))) if sys.platform == "linux" else 0.0


def spent(inspection: Inspection, ids: list[str]) -> float:
    """Return the seconds from the first hand-out of these jobs, all of which are done, to the last done."""
    # First in, first out: the first and the last to be run are near the ends of the list.
    handouts = [inspection.job(id)["handouts"][-1] for id in dict.fromkeys(ids[:ENDS] + ids[-ENDS:])]
    begin, end = min(handout["begin_at"] for handout in handouts), max(handout["end_at"] for handout in handouts)
    return float(max(1, end - begin) / 1000)


def drain(bench: Bench, durability: Durability) -> list[Figure]:
    """Empty a queue of no-op jobs with one worker process of ten slots; at `normal` also what that costs."""
    wanted = 0.30 if durability == "normal" else 0.22
    with client(bench, durability) as here, worker(here.url) as supervisor:
        drains = Drains(here.inspection, supervisor.pid, tasks.app, tasks.noop.s)
        found = compare(bench, bench.sizes.drains, drains.drain, prepare=lambda: drains.fill(bench.sizes.jobs))
        jobs = here.inspection.record()["totals"]["done"]
    label = f"drain of {bench.sizes.jobs:,} no-op jobs ({durability})"
    figures = [found.figure(f"drain-{durability}", label, wanted)]
    if durability == "normal":
        # The server has ended, which folds the write-ahead log into the file.
        kept = bench.data(durability).stat().st_size / jobs
        figures += [
            *_cpu(drains, median(one.base for one in found.rounds)),
            Figure("kept", "kept on disk for a done job", kept, "bytes"),
        ]
    return figures


def _cpu(drains: Drains, p: float) -> list[Figure]:
    if sys.platform != "linux":
        return []  # the numbers come from /proc
    seconds = median(drains.cpu)
    return [
        Figure(
            "worker-cpu",
            "worker's CPU for 1,000 no-op jobs",
            seconds,
            "s",
            3,
            ratio=seconds * p / 1000,
            of="1/P a job",
            wanted="0.04 s",
            met=seconds <= 0.04,
            less=True,
        )
    ]


def drain_coroutines(bench: Bench) -> list[Figure]:
    """The same with a coroutine that does nothing, in a process with a hundred places for coroutines."""
    with ExitStack() as stack:
        here = stack.enter_context(client(bench, "normal"))
        supervisor = stack.enter_context(worker(here.url, app=coroutines.__name__))
        drains = Drains(here.inspection, supervisor.pid, coroutines.app, coroutines.noop.s)
        found = compare(bench, bench.sizes.drains, drains.drain, prepare=lambda: drains.fill(bench.sizes.jobs))
    return [found.figure("drain-async", f"drain of {bench.sizes.jobs:,} async no-op jobs, 100 slots", 0.25)]
