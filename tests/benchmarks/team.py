"""Two producers and some worker processes, all at once, and how much processor time each side had meanwhile."""

from __future__ import annotations

import sys
import time
from statistics import median

from tenure.inspection import Inspection
from tests.benchmarks.processes import Producers, cpu_seconds, family
from tests.benchmarks.stage import until_done

LABELS = ("server", "producers", "workers")


class Team:
    """`server` and `supervisor` are process ids, `jobs` how many a round has; all are up once this is made."""

    def __init__(self, inspection: Inspection, server: int, pair: Producers, supervisor: int, jobs: int) -> None:
        self._inspection = inspection
        self._server = server
        self._pair = pair
        self._supervisor = supervisor
        self._each = jobs // 2
        self._parts: list[list[float]] = []
        until_done(inspection, 2)  # the producers' first ones

    def round(self) -> float:
        """Return the jobs a second from the first call to the last done."""
        done = self._inspection.record()["totals"]["done"]
        linux = sys.platform == "linux"
        groups = [[self._server], self._pair.pids, family(self._supervisor)] if linux else []
        before = [sum(map(cpu_seconds, group)) for group in groups]
        begin = time.perf_counter()
        self._pair.add(self._each)
        until_done(self._inspection, done + 2 * self._each)
        took = time.perf_counter() - begin
        after = [sum(map(cpu_seconds, group)) for group in groups]
        self._parts.append([(late - early) / took for late, early in zip(after, before, strict=True)])
        return 2 * self._each / took

    def note(self) -> str:
        """Return how many CPUs each side had, the medians of all rounds."""
        columns = zip(*self._parts, strict=True)
        cpus = [f"{name} {median(column):.2f}" for name, column in zip(LABELS, columns, strict=False)]
        return f"CPUs used: {', '.join(cpus)}" if cpus else ""


def label(processes: int) -> str:
    """Return what the table calls this."""
    return f"2 producers, {processes} worker process{'es' if processes > 1 else ''}, end to end"
