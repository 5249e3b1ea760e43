"""The app of the tests of results: tasks that return, fail, tell how far they are, or wait for one another."""

from __future__ import annotations

import time

from tenure import App, Job, JobContext
from tests.stage.marks import GO, folder

app = App("acceptance-results", include=["tests.stage.apps.results"])


class NoStock(Exception):
    """Has a constructor of its own, which nobody else can call."""

    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{item}: {left} left")
        self.item = item


@app.task
def double(number: float) -> float:
    return 2 * number


@app.task
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task(max_attempts=1)
def order(item: str) -> None:
    raise NoStock(item, 0)


@app.task(results=False)
def silent() -> int:
    return 1


@app.task
def returns(size: int) -> str:
    return "x" * size


@app.task
def returns_what_cannot_be_kept() -> object:
    return object()


@app.task
def steps(context: JobContext) -> int:
    """Tell how far it is until the test lets go."""
    context.progress(1, 4, "first step")
    end = time.monotonic() + 20
    while not (folder() / GO).exists() and time.monotonic() < end:
        time.sleep(0.01)
    return 4


@app.task(max_attempts=1)
def waits_for_another() -> float:
    child: Job[float] = double.delay(21)
    return child.result(timeout=20)


@app.task(max_attempts=1)
def waits_for_a_known_key() -> float:
    """Wait for a job that another caller has added, to another queue than this call names."""
    child: Job[float] = double.options(key="known", queue="elsewhere").delay(21)
    return child.result(timeout=20)
