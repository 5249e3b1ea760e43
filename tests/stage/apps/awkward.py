"""An app that is awkward to run: slow to start, deaf while it works, struck by strange errors, with a brood."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tenure import App, current_job
from tenure.worker.taker import Taker
from tests.stage.marks import folder, marked

app = App("awkward")


class Strange(BaseException):
    """An error of a kind that nobody expects."""


@app.on_worker_start
def start_slowly() -> None:
    """Take as long as the test says."""
    time.sleep(float(os.environ.get("START_SECONDS", "0")))


@app.on_worker_start
def break_the_fetch_loop_once() -> None:
    """Let the taker's third round raise, in the first process that comes here."""
    if os.environ.get("BREAK_ONCE") is None:
        return
    try:
        (folder() / "broken").touch(exist_ok=False)
    except FileExistsError:
        return
    taker: Any = Taker
    whole: Callable[[Any], None] = taker._round
    rounds: list[int] = []

    def strange(self: Any) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            raise Strange("out of nowhere")
        whole(self)

    taker._round = strange


@app.task
def work(number: int) -> int:
    """Be quick."""
    with marked():
        return number


@app.task
def deafen(milliseconds: int) -> None:
    """Hold the interpreter's lock in one call of C code; nothing else of this process runs meanwhile."""
    with marked():
        ctypes.PyDLL(None).usleep(milliseconds * 1000)


@app.task
def die_once(number: int) -> int:
    """Kill the process that runs it, at the first hand-out."""
    with marked():
        if current_job.fence == 1:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60.0)  # the signal may take a moment
    return number


@app.task
def breed(number: int) -> int:
    """Let other processes do the sums, forked ones and fresh ones; their numbers go to the file `brood`."""
    with marked():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            sums = sum(pool.map(square, range(number)))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            return sums + sum(executor.map(square, range(number)))


def square(number: int) -> int:
    """Leave word of the process that this runs in."""
    with (folder() / "brood").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return number * number
