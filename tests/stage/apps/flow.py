"""An app with everything around its jobs: middleware, carried variables, dependencies, subscribers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar

from tenure import App, Backoff, DeadJob, Depends, Event, Failure, JobContext
from tenure.broker import Added
from tenure.message import Message
from tenure.middleware import CallNext, PublishNext
from tests.stage.marks import folder

app = App("flow")
tenant = app.carry(ContextVar("tenant", default="nobody"))
private: ContextVar[str] = ContextVar("private", default="unset")
private.set("of the module")


def write(name: str, *words: object) -> None:
    """Add a line to a file of the test, in one write."""
    with (folder() / name).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@app.on_worker_start
def begins() -> None:
    """Set what no job may find."""
    tenant.set("of the process")
    private.set("of the process")


@app.publish_middleware
def numbered(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
    """Say who added it."""
    return call_next([message.with_headers(by=os.getpid()) for message in messages])


@app.middleware
async def watched(ctx: JobContext, call_next: CallNext) -> object:
    """Say what comes through."""
    try:
        result = await call_next()
    except ValueError as error:
        write("layers", ctx.id, f"raised:{error}", ctx.headers["by"])
        raise
    write("layers", ctx.id, "returned", ctx.headers["by"])
    return result


@app.on(
    "job.added", "job.started", "job.done", "job.retried", "job.dead", "job.cancelled", "job.released", "lease.lost",
    "worker.started", "worker.stopped",
)  # fmt: skip
def told(event: Event) -> None:
    """Keep it."""
    write("events", os.getpid(), event.name, event.job_id or "-", event.attempt)


@app.on_dead
def buried(job: DeadJob, error: Failure) -> None:
    """Tell with which arguments, and of what."""
    write("buried", job.id, job.attempt, *job.args, error.kind)


def connection() -> Iterator[int]:
    """Belong to the process."""
    write("opened", os.getpid(), "open")
    yield os.getpid()
    write("opened", os.getpid(), "close")


async def client() -> AsyncIterator[str]:
    """Belong to the job."""
    await asyncio.sleep(0)
    yield "client"
    write("opened", os.getpid(), "client closed")


def scratch() -> Iterator[None]:
    """Belong to the job, and tell how that ended."""
    try:
        yield
    except BaseException as error:
        write("opened", os.getpid(), type(error).__name__)
        raise


def seen() -> list[str]:
    """Return what a job finds, and leave something behind for the next one."""
    found = [tenant.get(), private.get()]
    tenant.set("of another job")
    private.set("of another job")
    return found


@app.task(name="looks", queue="plain")
def looks(*, database: int = Depends(connection, per="process")) -> list[str]:
    """Look around in a thread."""
    time.sleep(0.005)
    assert database == os.getpid()
    return seen()


@app.task(name="alooks", queue="coroutines")
async def alooks(*, http: str = Depends(client)) -> list[str]:
    """Look around in a coroutine."""
    await asyncio.sleep(0.005)
    assert http == "client"
    return seen()


@app.task(name="fails", queue="plain", max_attempts=2, backoff=Backoff(base=0.05))
def fails() -> None:
    """Fail, and again."""
    raise ValueError("no")


@app.task(name="hangs", queue="plain", max_attempts=1, timeout=0.3)
def hangs(*, scratch: None = Depends(scratch)) -> None:
    """Run on until it is ended."""
    for _ in range(3000):
        time.sleep(0.01)


@app.task(name="sleeps", queue="plain", max_attempts=2, timeout=0.3, backoff=Backoff(base=0.05))
def sleeps(seconds: float) -> None:
    """Be ended only with the process."""
    time.sleep(seconds)


@app.task(name="crashes", queue="plain", max_losses=2)
def crashes(code: int) -> None:
    """End the process."""
    os._exit(code)
