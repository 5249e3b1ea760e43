"""What all contenders' tasks do, the same for each: nothing, but that the first and the last one of a drain tell when.

The standard library alone, since each contender's own interpreter imports it.  Where to tell it, and how many jobs a
drain has, is in the environment; times are in seconds of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time

MARKS = "BENCH_MARKS"
TOTAL = "BENCH_TOTAL"
BROKER = "BENCH_BROKER"
MARK = struct.Struct("qd")
"""A number, and when: 1 and the total of a drain, or that of a job of the latency, which is below zero."""

_total = int(os.environ.get(TOTAL, "0"))
_marks = os.environ.get(MARKS, "")
_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
_count = itertools.count(1).__next__


def noop(number: int) -> None:
    """Do nothing; of a drain's jobs, the first and the last tell when they began."""
    began = _count()
    if began in (1, _total):
        tell(began)


def tell(number: int) -> None:
    """Tell the benchmark that this body runs now."""
    _socket.sendto(MARK.pack(number, time.monotonic()), _marks)
