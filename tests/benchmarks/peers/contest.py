"""One run of one contender: add, drain, latency, idle, on a server of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import IO, NamedTuple

from tests.benchmarks.peers.contenders import PROGRAMS, Contender
from tests.benchmarks.peers.programs.body import BROKER, MARK, MARKS, TOTAL
from tests.benchmarks.peers.servers import serving
from tests.benchmarks.processes import ROOT, cpu_seconds, ended, family, own_bytes, resident_bytes

WARM = 100
"""Jobs before those that are counted, so that connections are made."""
FIRST_LIMIT, LIMIT = 60.0, 300.0
"""Seconds until a worker's first job, and until the last one of a drain."""


class Amounts(NamedTuple):
    """How much of everything; `idle` and `rest`, which is between what is measured, are in seconds."""

    jobs: int = 20_000
    samples: int = 300
    idle: float = 5.0
    rest: float = 1.0


class Run(NamedTuple):
    """Jobs a second added and drained, seconds of CPU a thousand jobs, latency in ms, and what it costs to be idle.

    `mib`: the memory of the largest process, `all_mib`: that of all processes, `percent`: of one CPU.
    """

    adds: float
    drains: float
    cpu: float
    p50: float
    p99: float
    mib: float
    all_mib: float
    percent: float


def run(contender: Contender, python: Path, amounts: Amounts) -> Run:
    """Measure a contender once; `python` is the interpreter with the peers."""
    interpreter = sys.executable if contender.ours else str(python)
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as name,
        serving(contender.server, Path(name)) as url,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks,
    ):
        path = str(Path(name) / "marks")
        marks.bind(path)
        environment = {BROKER: url, MARKS: path, TOTAL: str(WARM + amounts.jobs), **contender.environment}
        command = [interpreter, "-m", f"{PROGRAMS}.producer", contender.module]
        with _started(command, environment) as producer:
            assert producer.stdin is not None
            assert producer.stdout is not None
            _order(producer.stdin, producer.stdout, "send", WARM)
            adds = amounts.jobs / float(_order(producer.stdin, producer.stdout, "send", amounts.jobs))
            with _started([interpreter, "-m", *contender.worker], environment) as worker:
                drains, cpu = _drain(marks, worker.pid, WARM + amounts.jobs)
                time.sleep(amounts.rest)
                p50, p99 = _latency(marks, producer.stdin, producer.stdout, amounts.samples)
                time.sleep(amounts.rest)
                mib, all_mib, percent = _idle(worker.pid, amounts.idle)
    return Run(adds, drains, cpu, p50, p99, mib, all_mib, percent)


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if "producer" in command[2] else subprocess.DEVNULL,
        stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    )
    with ended(process):
        if process.stdout is not None and process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(command)} did not start; $BENCH_VERBOSE=1 shows what it says")
        yield process


def _order(orders: IO[str], answers: IO[str], order: str, count: int) -> str:
    print(order, count, file=orders, flush=True)
    return answers.readline()


def _drain(marks: socket.socket, worker: int, total: int) -> tuple[float, float]:
    """Return the jobs a second from the first body to the last, and the CPU seconds a thousand of them."""
    marks.settimeout(FIRST_LIMIT)
    _, first = MARK.unpack(marks.recv(64))
    before = sum(map(cpu_seconds, family(worker)))
    marks.settimeout(LIMIT)
    _, last = MARK.unpack(marks.recv(64))
    spent = sum(map(cpu_seconds, family(worker))) - before
    return total / (last - first), spent / total * 1000


def _latency(marks: socket.socket, orders: IO[str], answers: IO[str], samples: int) -> tuple[float, float]:
    """Return the milliseconds from a call to the start of its body, the half and 99 of 100 below."""
    print("tell", samples, file=orders, flush=True)
    marks.settimeout(FIRST_LIMIT)
    began_at = {-number: when for number, when in (MARK.unpack(marks.recv(64)) for _ in range(samples))}
    called_at = [float(word) for word in answers.readline().split()]
    took = [(began_at[number] - called) * 1000 for number, called in enumerate(called_at, 1)]
    steps = quantiles(took, n=100, method="inclusive")
    return steps[49], steps[98]


def _idle(worker: int, seconds: float) -> tuple[float, float, float]:
    """Return the MiB of the largest process of the worker, those of all, and the CPU of all in percent of one."""
    pids = family(worker)
    before = sum(map(cpu_seconds, pids))
    time.sleep(seconds)
    percent = 100 * (sum(map(cpu_seconds, pids)) - before) / seconds
    return max(map(resident_bytes, pids)) / 2**20, sum(map(own_bytes, pids)) / 2**20, percent
