"""A contender's producer: `python -m tests.benchmarks.peers.programs.producer MODULE`, in its own interpreter.

It prints `ready`; then it reads orders, one a line, and answers each with a line: `send N` adds N jobs and prints the
seconds, `tell N` adds N jobs, one at a time with a rest before each, and prints when each call began.
"""

from __future__ import annotations

import importlib
import random
import sys
import time

REST = 0.02
"""Seconds, on average, before each job of the latency."""


def main(module: str) -> None:
    """Do what is asked until there is no more input."""
    contender = importlib.import_module(f"tests.benchmarks.peers.programs.{module}")
    print("ready", flush=True)
    for line in sys.stdin:
        order, count = line.split()
        if order == "send":
            began_at = time.perf_counter()
            contender.send(int(count))
            print(time.perf_counter() - began_at, flush=True)
            continue
        called_at = []
        for number in range(1, int(count) + 1):
            time.sleep(REST * random.uniform(0.5, 1.5))
            called_at.append(time.monotonic())
            contender.send_tell(-number)
        print(*called_at, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
