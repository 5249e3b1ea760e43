"""The server, the workers and the producers as processes of their own, as users have them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
def server(data: Path, durability: Durability, *options: str) -> Iterator[Running]:
    """Run `tenure server` on a free port."""
    command = ["server", "--listen", "127.0.0.1:0", "--data", str(data), "--durability", durability, *options]
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
def worker(
    url: str, *, app: str = APP, processes: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run `tenure worker` with processes of ten slots (a hundred for coroutines); what it counted is not shown."""
    command = ["worker", "-A", app, "--broker", url, "--processes", str(processes), "--threads", str(SLOTS)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", *command, "--log-level", "warning"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | dict(environment or {}),
    )
    with ended(process):
        yield process


class Producers:
    """Some programs of their own that add no-op jobs, all at once, each time they are told to."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self.pids = [process.pid for process in processes]
        self._ends = [(process.stdin, process.stdout) for process in processes]

    def add(self, each: int) -> tuple[float, float]:
        """Have every one add so many, one by one; returns when the first began and the last ended (boot clock)."""
        for orders, _ in self._ends:
            assert orders is not None
            print(each, file=orders, flush=True)
        spans = [self._answer(index) for index in range(len(self._ends))]
        return min(begin for begin, _ in spans), max(end for _, end in spans)

    def _answer(self, index: int) -> tuple[float, float]:
        answers = self._ends[index][1]
        assert answers is not None
        begin, end = answers.readline().split()
        return float(begin), float(end)


@contextmanager
def producers(url: str, count: int) -> Iterator[Producers]:
    """Start so many producers, and wait until all of them are connected; they end with their input."""
    command = [sys.executable, "-m", "tests.benchmarks.producer", url]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a producer did not start; what it said stands above")
        yield Producers(started)
    finally:
        for process in started:
            with ended(process):
                assert process.stdin is not None
                process.stdin.close()


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


def family(pid: int) -> list[int]:
    """Return this process and all that came from it and still run (Linux)."""
    return [pid, *(one for child in children(pid) for one in family(child))]


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM, shared libraries included (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def own_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM, what it shares with others as its part of it (Linux)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/smaps_rollup says nothing of Pss")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that all threads of a process have had (Linux)."""
    # In nanoseconds; the times in /proc/PID/stat come in steps of 10 ms, too coarse for an idle process.
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
