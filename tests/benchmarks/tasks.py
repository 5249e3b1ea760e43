"""The app whose jobs are measured; the worker imports it too."""

from __future__ import annotations

import os
import socket
import struct

from tenure import App
from tenure.clock import boot

MARKS = "TENURE_BENCHMARK_MARKS"
"""The environment variable with the path of the datagram socket that `mark` writes to."""
MARK = struct.Struct("qd")
"""One mark: the number that `mark` was called with, and when its body began, in seconds of the boot clock."""

app = App("benchmarks")

_marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


@app.task
def noop(number: int) -> None:
    """Do nothing."""


@app.task
def text(content: str) -> None:
    """Do nothing with a text."""


@app.task
def blob(content: bytes) -> None:
    """Do nothing with bytes."""


@app.task
def mark(number: int) -> None:
    """Tell the benchmark when this body began."""
    began_at = boot()
    _marks.sendto(MARK.pack(number, began_at), os.environ[MARKS])
