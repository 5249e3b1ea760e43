"""The server and the worker as processes of their own, started by the command line that users have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.benchmarks.tasks"
SLOTS = 10

Durability = Literal["normal", "full"]


class Running(NamedTuple):
    """A server that accepts connections at `url` and keeps everything in `data`."""

    url: str
    data: Path
    process: subprocess.Popen[str]


@contextmanager
def server(data: Path, durability: Durability) -> Iterator[Running]:
    """Run `tenure server` on a free port."""
    command = ["server", "--listen", "127.0.0.1:0", "--data", str(data), "--durability", durability]
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", *command, "--log-level", "warning"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with ended(process):
        assert process.stdout is not None
        announced = process.stdout.readline()
        if not announced:
            raise RuntimeError("the server did not start; what it said stands above")
        url = announced.removeprefix("tenure server on ").partition(", ")[0]
        yield Running(url, data, process)


@contextmanager
def worker(url: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `tenure worker` with one process of ten slots; what it counted is not shown."""
    command = ["worker", "-A", APP, "--broker", url, "--processes", "1", "--threads", str(SLOTS)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", *command, "--log-level", "warning"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    )
    with ended(process):
        yield process


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no process behind: ask it to end, and kill it when it does not."""
    with process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def children(pid: int) -> list[int]:
    """Return the processes that this one has started and that still run (Linux)."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for list_ in lists for child in list_.read_text().split()]


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM, shared libraries included (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that all threads of a process have had (Linux)."""
    # In nanoseconds; the times in /proc/PID/stat come in steps of 10 ms, too coarse for an idle process.
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
