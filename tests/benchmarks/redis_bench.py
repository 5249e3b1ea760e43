"""What the measurements on Redis share: servers of their own, and redis-py's rates beside ours."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tenure.inspection import Inspection, inspect
from tests.benchmarks import coroutines, tasks
from tests.benchmarks.peers.servers import free_port
from tests.benchmarks.processes import ROOT, ended
from tests.benchmarks.stage import Compared, Round, Sizes

Fsync = Literal["everysec", "always"]
"""When Redis has what it answered on its disk: within a second, or before the answer."""
READY_LIMIT = 30.0


@dataclass(frozen=True)
class RedisBench:
    """What every measurement on Redis is given: an empty folder, how much to measure, the peers' interpreter."""

    folder: Path
    sizes: Sizes
    python: Path


class Raw:
    """redis-py in a process of its own, at the same server."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders = orders
        self._answers = answers

    def evalsha(self, count: int) -> float:
        """Return how many calls a second it makes of a script that does nothing, one by one."""
        return self._ask("evalsha", count)[0]

    def pipelined(self, count: int) -> float:
        """The same, a hundred with each write."""
        return self._ask("pipelined", count)[0]

    def push_and_pop(self, count: int) -> list[float]:
        """Return the seconds from each push to the return of a pop that waits for it in another process."""
        return self._ask("pushpop", count)

    def used_memory(self) -> int:
        """Return the bytes that Redis uses."""
        return int(self._ask("memory", 1)[0])

    def _ask(self, order: str, count: int) -> list[float]:
        print(order, count, file=self._orders, flush=True)
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError("redis-py's process has ended; what it said stands above")
        return [float(word) for word in answer.split()]


@dataclass(frozen=True)
class Here:
    """A Redis of this measurement, redis-py beside it, and a view of its jobs."""

    url: str
    pid: int
    raw: Raw
    inspection: Inspection


@contextmanager
def here(bench: RedisBench, fsync: Fsync) -> Iterator[Here]:
    """Run a Redis with nothing in it; both apps' broker is set to it."""
    with redis_server(bench.folder, fsync) as (url, pid), _raw(url) as raw, inspect(url) as inspection:
        for app in (tasks.app, coroutines.app):
            app.use_broker(url)
        try:
            yield Here(url, pid, raw, inspection)
        finally:
            tasks.app.close()
            coroutines.app.close()


@contextmanager
def redis_server(folder: Path, fsync: Fsync) -> Iterator[tuple[str, int]]:
    """Run a Redis that keeps an append-only file, and return its URL and process id."""
    port = free_port()
    own = folder / f"redis-{port}"
    own.mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(own), "--save", ""]
    process = subprocess.Popen(
        ["redis-server", *options, "--appendonly", "yes", "--appendfsync", fsync],
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with ended(process):
        _until_open(port)
        yield f"redis://127.0.0.1:{port}", process.pid


def _until_open(port: int) -> None:
    end = time.monotonic() + READY_LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


@contextmanager
def _raw(url: str) -> Iterator[Raw]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.redis_raw", url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with ended(process):
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("redis-py's process did not start; what it said stands above")
        yield Raw(process.stdin, process.stdout)


def compare(
    of: str, times: int, raw: Callable[[], float], ours: Callable[[], float], prepare: Callable[[], object] = bool
) -> Compared:
    """Measure redis-py, ours, redis-py in each round, so that a machine that slows down meanwhile slows both."""
    rounds = []
    for _ in range(times):
        prepare()
        before, rate, after = raw(), ours(), raw()
        rounds.append(Round(rate, (before + after) / 2, None))
    return Compared(of, tuple(rounds))
