"""Tenure: results off, as with all others; late ack as ever."""

from __future__ import annotations

import os

from tenure import App
from tests.benchmarks.peers.programs import body

app = App("bench", broker=os.environ.get(body.BROKER))
_noop = app.task(name="noop", results=False)(body.noop)
_tell = app.task(name="tell", results=False)(body.tell)
send_tell = _tell.delay


def send(count: int) -> None:
    """Add so many no-op jobs, one by one."""
    for number in range(count):
        _noop.delay(number)
