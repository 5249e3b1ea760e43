"""Tasks that run for long, some with care for their lease and some without.

Those that wait to be ended do so at their job's first hand-out only; a later one returns at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from dataclasses import dataclass
from typing import ClassVar

from tenure import App, Event, JobContext, current_job
from tenure.clock import boot
from tests.stage import marks
from tests.stage.marks import BEAT, GO, marked

app = App("leases")

PERIOD = 0.1
"""Seconds between two looks at the lease."""

STEP = 0.01
"""Seconds between two marks: less than the time that a worker ends its tasks before another one has their jobs."""


@app.on("job.done", "lease.lost")
def told(event: Event) -> None:
    """Keep what this process is told of the ends of its jobs."""
    with (marks.folder() / "ends").open("a") as file:
        file.write(f"{event.worker} {event.name} {event.job_id}\n")


@app.task
def long(seconds: float) -> None:
    """Take so long, and stop when the lease is about to be lost."""
    with marked(seconds):
        pass


@app.task
def hog(seconds: int) -> None:
    """Keep the interpreter's lock in one call of C: no other thread of the process runs any Python meanwhile."""
    with marked():
        ctypes.PyDLL(None).sleep(seconds)


@app.task
async def blocks(seconds: float) -> None:
    """Keep the event loop from everything else."""
    with marked(seconds):
        pass


@app.task
def tiny(number: int, text: str) -> list[object]:
    """Return what came, at once."""
    with marked():
        return [number, text]


@dataclass
class Slow:
    """An argument that takes its time to be made anew."""

    seconds: float
    bulk: bytes
    made: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Wait where it is made by the worker; the caller has made one before."""
        if Slow.made:
            time.sleep(self.seconds)
        Slow.made += 1


@app.task
def weighs(argument: Slow) -> int:
    """Return how much came."""
    with marked():
        return len(argument.bulk)


def whose() -> str:
    """Say which hand-out this is, and of which key: the second has the same key as the first."""
    return f"hand-out {current_job.fence} of {current_job.key}"


# What is cut off from the server while it runs.


@app.task
def ended(number: int) -> str:
    """Go on and on, and have no eye on the lease; a failed step is no reason to stop."""
    with marked():
        while current_job.fence == 1:
            try:
                time.sleep(STEP)
                marks.beat()
            except Exception:  # noqa: BLE001
                pass
        return whose()


@app.task
async def cancelled(number: int) -> str:
    """Do the same as a coroutine."""
    with marked():
        while current_job.fence == 1:
            await asyncio.sleep(STEP)
            marks.beat()
        return whose()


@app.task
def runs_a_loop(number: int) -> str:
    """Do the same in an event loop of the task's own."""

    async def step() -> None:
        while current_job.fence == 1:
            await asyncio.sleep(STEP)
            marks.beat()

    async def steps() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step())

    with marked():
        asyncio.run(steps())
        return whose()


@app.task(on_lease_lost="finish")
def looks(ctx: JobContext) -> str:
    """Look at the lease from time to time, and write down when it was found to be lost."""
    with marked():
        pass
    while ctx.fence == 1 and not ctx.lease_lost:
        time.sleep(PERIOD)
    if ctx.fence == 1:
        (marks.folder() / "seen").write_text(str(boot()))
    return whose()


@app.task(on_lease_lost="finish")
def finishes(number: int) -> str:
    """Run until the test lets go, whoever runs the job meanwhile; it leaves marks of its start only."""
    with marked():
        pass
    while current_job.fence == 1 and not (marks.folder() / GO).exists():
        time.sleep(BEAT)
    return whose()
