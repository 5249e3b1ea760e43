"""An app whose processes are awkward to run: slow to start, deaf while they work, struck by strange errors."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

from tenure import App
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
