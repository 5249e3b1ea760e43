"""Tasks with a time limit that they do not keep, each in a way of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import time
from contextlib import suppress

from tenure import App, Backoff, JobContext, TimeLimitExceeded, current_job
from tests.stage.marks import GO, folder, marked

app = App("limits")

LIMIT = 0.5
LONG = 60.0
SOON = Backoff(base=0.05)


@app.task(timeout=LIMIT, max_attempts=3, backoff=SOON)
def spins() -> str:
    """Run Python code without an end."""
    with marked():
        while True:
            pass


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
async def awaits() -> str:
    """Wait in the event loop."""
    with marked():
        await asyncio.sleep(LONG)
    return "finished"


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
async def blocks() -> str:
    """Keep the event loop from everything else."""
    with marked():
        time.sleep(LONG)  # noqa: ASYNC251  (what no coroutine should do)
    return "finished"


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
def sleeps(seconds: float = LONG) -> str:
    """Sleep, which no exception ends."""
    with marked():
        time.sleep(seconds)
    return "finished"


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
def reads() -> str:
    """Read from a socket to which nobody writes."""
    here, there = socket.socketpair()
    with marked(), here, there:
        here.recv(1)
    return "finished"


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
def hogs() -> str:
    """Keep the interpreter's lock in one call of C: nothing else in the process runs meanwhile."""
    with marked():
        ctypes.PyDLL(None).sleep(int(LONG))
    return "finished"


@app.task(timeout=0.1, max_attempts=1)
def overruns(number: int, seconds: float) -> int:
    """Go on after the limit, and end in one of three ways."""
    with marked():
        end = time.monotonic() + seconds
        with suppress(TimeLimitExceeded) if number % 3 == 1 else _raising(number):
            while (left := end - time.monotonic()) > 0:
                time.sleep(left)
        return number


class _raising:  # noqa: N801  (it stands where `suppress` does)
    """For some numbers, raises another error on the way out."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._number % 3 == 2:
            raise OSError("while it cleaned up")


@app.task
def quick(number: int) -> int:
    """Give the number back."""
    with marked():
        return number


@app.task
def holds(number: int) -> int:
    """Run until the test lets go."""
    with marked(LONG, until=folder() / GO):
        return number


@app.task(timeout=LIMIT, max_attempts=2, backoff=SOON)
def cleans_up(ctx: JobContext) -> str:
    """At the first attempt run over the limit, tell that it cleans up, and let the error through."""
    with marked():
        try:
            while ctx.attempt == 1:
                pass
        except TimeLimitExceeded:
            (folder() / "cleaned").touch()
            raise
    return f"attempt {ctx.attempt}"


@app.task(timeout=600.0)
def crashes() -> str:
    """Kill its process at the first hand-out, long before its limit."""
    with marked():
        if current_job.fence == 1:
            os._exit(9)
    return "finished"
