"""The app that the acceptance tests run: tasks that leave marks of when they ran, and some that behave badly.

Marks go to the file that `tests.stage.marks` names, and `hold` waits for the file `go` beside it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing

from tenure import App, Backoff, current_job
from tests.stage.marks import GO, folder, marked

app = App("acceptance")


@app.task
def work(number: int, seconds: float = 0.0) -> int:
    """Take some time and give the number back."""
    with marked(seconds):
        return number


@app.task(backoff=Backoff(base=0.05))
def second_try(number: int, seconds: float = 0.0) -> int:
    """Take some time, and raise at the first attempt."""
    with marked(seconds):
        if current_job.attempt == 1:
            raise ValueError("not at the first attempt")
        return number


@app.task
def hold(number: int) -> int:
    """At the first hand-out run until the test lets go; later ones return at once."""
    with marked(60.0, until=folder() / GO):
        return number


@app.task
def insert_once(number: int) -> None:
    """Insert a row that cannot be there twice."""
    with marked(), closing(sqlite3.connect(folder() / "unique.db", timeout=30.0, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("INSERT INTO seen VALUES (?)", (number,))


@app.task(max_losses=3)
def poison() -> None:
    """Kill the process that runs it."""
    with marked():
        pass
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60.0)  # the signal may take a moment


@app.task(max_attempts=2, backoff=Backoff(base=0.05))
def broken(text: str) -> None:
    """Raise, always."""
    with marked():
        raise ValueError(text)


@app.task(queue="invoices", key=lambda order, cents: f"order:{order}")
def invoice(order: int, cents: int) -> None:
    """Have a key of its own."""
    with marked():
        pass
