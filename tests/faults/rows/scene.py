"""What every row runs on: a server, 200 jobs of 20 ms, a worker with two slots, and a proxy at either side."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from tenure import Job, clock
from tenure.faults import Proxy
from tests.stage.apps import jobs
from tests.stage.harness import Stage, Worker, wait_for
from tests.stage.marks import Execution
from tests.stage.scripts import LosesAnswers

JOBS = 200
SECONDS = 0.02
"""How long one job takes."""
VISIBILITY_TIMEOUT = 5.0
ENOUGH = 50
"""Jobs that are done before something breaks, so that most are still to be done after it."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Reached:
    """What a row came to, and whether it is what it must be."""

    text: str
    holds: bool


class Scene:
    """One row's processes and connections; ended with its `with` block."""

    def __init__(self, place: Path) -> None:
        self._ends = ExitStack()
        self.stage = Stage(place)
        self._ends.callback(self.stage.close)
        self.ids: list[str] = []

    def __enter__(self) -> Self:
        self.stage.start_server()
        self.lossy = LosesAnswers(0)
        self.at_worker = self._ends.enter_context(Proxy(self.stage.url, script=self.lossy))
        self.at_producer = self._ends.enter_context(Proxy(self.stage.url, script=self.lossy))
        self.stage.use(jobs.app, self.at_producer.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def add(self, count: int = JOBS, seconds: float = SECONDS) -> list[Job[int]]:
        """Add jobs, which must be done in the end."""
        added = [jobs.work.delay(number, seconds) for number in range(count)]
        self.ids += [job.id for job in added]
        return added

    def hold(self) -> Execution:
        """Add a job whose first hand-out does not end by itself, and return that execution once it runs."""
        job = jobs.hold.delay(0)
        self.ids.append(job.id)
        return wait_for(lambda: self.stage.executions(job.id), PATIENCE, "the job has started")[0]

    def worker(self, name: str = "w", *, processes: int = 1) -> Worker:
        """Start a worker with two slots, of one process or of two."""
        options = ("--processes", str(processes), "--threads", str(2 // processes))
        timeout = ("--visibility-timeout", f"{VISIBILITY_TIMEOUT:g}s")
        return self.stage.start_worker(name, *options, *timeout, broker=self.at_worker.url)

    def working(self) -> float:
        """Add all jobs, let a worker do some of them, and return the time (boot clock)."""
        self.add()
        self.worker()
        self.stage.wait_done(ENOUGH, PATIENCE)
        return clock.boot()

    def again_after(self, execution: Execution, since: float) -> float:
        """Return how many seconds after `since` the job of a lost execution ran again."""
        later = wait_for(lambda: self.stage.executions(execution.job)[1:], PATIENCE, "the job runs again")[0]
        return later.start - since

    def pause_since(self, since: float) -> float:
        """Wait until all is done, and return the longest time after `since` in which no job was started."""
        self.stage.wait_done(len(self.ids), PATIENCE)
        starts = [one.start for one in self.stage.executions()]
        return max((later - max(earlier, since) for earlier, later in pairwise(starts) if later > since), default=0.0)

    def end(
        self,
        seconds: float | None = None,
        limit: float = 0.0,
        *,
        twice: int = 0,
        by_hand: int = 0,
        killed: tuple[Worker, ...] = (),
    ) -> Reached:
        """Hold all accounts against each other, and tell what was reached.

        `seconds` may be `limit` at most, and `twice` jobs may have been started more than once.  `by_hand` jobs were
        added without the client.
        """
        self.stage.wait_done(len(self.ids), PATIENCE)
        wait_for(lambda: self.stage.totals()["running"] == 0, PATIENCE, "nothing runs any more")
        runs = Counter(one.job for one in self.stage.executions())
        lost = sum(runs[id] == 0 for id in self.ids)
        more = sum(runs[id] > 1 for id in self.ids)
        produced = jobs.app.counts
        totals = self.stage.check(produced._replace(added=produced.added + by_hand), killed=killed)["totals"]
        took = "" if seconds is None else f"{seconds:.2f} s, "
        holds = (seconds or 0.0) <= limit and more <= twice and totals["done"] == len(self.ids) and not lost
        return Reached(f"{took}{lost} lost, {more} started twice", holds)
