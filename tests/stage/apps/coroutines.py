"""Coroutines and functions side by side: what they leave in the folder of the test tells how they ran.

`held` waits for the file `go`, as `tests.stage.apps.jobs.hold` does.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextvars import ContextVar
from typing import Any

from tenure import App, Backoff, JobContext, current_job
from tests.stage.marks import GO, folder

app = App("coroutines")

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
pool = asyncio.Semaphore(7)
"""Of a module, and bound to the first loop that waits for it: one loop a job could not share it."""
running = 0

tenant.set("set at import")


def note(**what: Any) -> None:
    """Append one line to the test's notes."""
    line = json.dumps({"job": current_job.id, "pid": os.getpid(), **what}) + "\n"
    file = os.open(folder() / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)


@app.task(queue="web", backoff=Backoff(base=0.05))
async def fetch(number: int, seconds: float = 0.01) -> int:
    """Share the module's pool; every seventh fails at first."""
    global running  # noqa: PLW0603
    running += 1
    async with pool:
        await asyncio.sleep(seconds)
    note(loop=id(asyncio.get_running_loop()), tenant=tenant.get(), thread=threading.current_thread().name)
    tenant.set(str(number))
    running -= 1
    if number % 7 == 0 and current_job.attempt == 1:
        raise ValueError("not yet")
    return number


@app.task
def tells() -> None:
    """Say whose context variables these are."""
    note(tenant=tenant.get())
    tenant.set("of a job before")


@app.task(queue="web")
async def sleeps(seconds: float) -> None:
    """Wait in the loop, and tell how many did at once."""
    global running  # noqa: PLW0603
    running += 1
    note(running=running)
    await asyncio.sleep(seconds)
    running -= 1


@app.task(queue="web")
async def blocks(seconds: float) -> None:
    """Keep the whole loop from running."""
    note(blocks=True)
    time.sleep(seconds)  # noqa: ASYNC251  (on purpose)


@app.task(queue="web")
async def held(ctx: JobContext) -> None:
    """Run until the test lets go; tell how it was ended."""
    note(started=ctx.fence)
    try:
        while not (folder() / GO).exists():  # noqa: ASYNC110  (another process makes it)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        note(cancelled=True, stopping=ctx.stopping)
        raise


@app.task
def steps(ctx: JobContext, count: int) -> int:
    """Say how far it is, and have the lease extended, until the test lets go."""
    before = ctx.deadline
    ctx.extend()
    for number in range(count):
        ctx.progress(number + 1, count, f"step {number + 1}")
    while not (folder() / GO).exists():
        time.sleep(0.02)
    after = ctx.deadline
    note(extended=before is not None and after is not None and after > before)
    return count


@app.task(queue="web")
async def fans(count: int) -> list[str]:
    """Add jobs from the loop, and have it go on meanwhile."""
    jobs = await asyncio.gather(*(tells.adelay() for _ in range(count)))
    return [job.id for job in jobs]


def square(number: int) -> int:
    return number * number


@app.task
def processes(kind: str) -> int:
    """Start processes in one of the ways that people do."""
    if kind == "executor":
        with ProcessPoolExecutor(2) as executor:
            return sum(executor.map(square, range(10)))
    with multiprocessing.get_context(kind).Pool(2) as made:
        total = sum(made.map(square, range(10)))
        made.close()
        made.join()
    return total
