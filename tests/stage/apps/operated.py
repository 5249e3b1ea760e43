"""The app of the tests in which jobs are cancelled and queues are stopped: tasks that leave marks of when they ran."""

from __future__ import annotations

import time

from tenure import App, Discard, JobContext
from tests.stage.marks import GO, beat, folder, marked

app = App("operated")


@app.task
def work(number: int, seconds: float = 0.0) -> int:
    """Take some time and give the number back."""
    with marked(seconds):
        return number


@app.task
def look(ctx: JobContext, end: str) -> str:
    """Run until it is asked to stop, and end then in the way that is named."""
    with marked():
        while not ctx.cancelled:
            time.sleep(0.01)
            beat()
        if end == "discard":
            raise Discard("asked to")
        if end == "raise":
            raise ValueError("broken off")
        return end


@app.task
def hold(number: int) -> int:
    """Run until the test lets go, at each hand-out."""
    with marked():
        while not (folder() / GO).exists():
            time.sleep(0.01)
            beat()
        return number
