"""What it costs to be ready: the time to the start of a job at rest, idle memory and processor time, the import."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from statistics import median, quantiles

from tenure.clock import boot
from tests.benchmarks.processes import ROOT, children, cpu_seconds, resident_bytes, worker
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import Bench, client
from tests.benchmarks.tasks import MARK, MARKS, mark

REST = 0.01
"""Seconds, on average, before each job of the latency, in which the worker settles and parks its take again."""


def rest(bench: Bench) -> list[Figure]:
    """A worker at rest: how soon it begins a job, one at a time, and what it costs while there is none."""
    path = bench.folder / "marks"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks,
        client(bench, "normal") as here,
        worker(here.url, environment={MARKS: str(path)}) as supervisor,
    ):
        marks.bind(str(path))
        marks.settimeout(30)
        return [*_latency(bench, marks), *_idle(bench, supervisor.pid, here.server.process.pid)]


def _latency(bench: Bench, marks: socket.socket) -> list[Figure]:
    """From the call of `.delay` to the start of the body."""
    seconds = [until_begun(marks, number) for number in range(-5, bench.sizes.samples)][5:]
    p = bench.p.rate(bench.sizes.trips)
    steps = quantiles(seconds, n=100, method="inclusive")
    return [
        _time("latency-p50", "delay to start at rest, p50", steps[49], p, "0.4 ms", 0.0004),
        _time("latency-p99", "delay to start at rest, p99", steps[98], p, "1.5 ms", 0.0015),
    ]


def _time(name: str, label: str, seconds: float, p: float, words: str, limit: float) -> Figure:
    ratio, met = seconds * p, seconds <= limit
    return Figure(name, label, seconds * 1000, "ms", 2, ratio=ratio, of="1/P", base=p, wanted=words, met=met, less=True)


def until_begun(marks: socket.socket, number: int) -> float:
    """Run one job and return the seconds from the call to the start of its body."""
    time.sleep(REST * random.uniform(0.5, 1.5))
    called_at = boot()
    mark.delay(number)
    while True:
        got, began_at = MARK.unpack(marks.recv(64))
        if got == number:
            return float(began_at - called_at)


def _idle(bench: Bench, supervisor: int, server: int) -> list[Figure]:
    """What a worker process costs while there is nothing to do."""
    if sys.platform != "linux":
        return []  # the numbers come from /proc
    [child] = children(supervisor)
    time.sleep(min(1.0, bench.sizes.idle))
    before, began_at = cpu_seconds(child), time.perf_counter()
    time.sleep(bench.sizes.idle)
    share = 100 * (cpu_seconds(child) - before) / (time.perf_counter() - began_at)
    mib = [resident_bytes(pid) / 2**20 for pid in (child, supervisor, server)]
    return [
        _size("idle-memory", "idle worker process, RSS", mib[0], "32 MiB", mib[0] <= 32),
        Figure("idle-cpu", "idle worker process, CPU", share, "%", 2, wanted="0.2 %", met=share <= 0.2, less=True),
        _size("supervisor-memory", "its supervisor, RSS", mib[1]),
        _size("server-memory", "idle server, RSS", mib[2]),
    ]


def _size(name: str, label: str, mib: float, wanted: str | None = None, met: bool | None = None) -> Figure:
    return Figure(name, label, mib, "MiB", 1, wanted=wanted, met=met, less=True)


def imported(bench: Bench) -> list[Figure]:
    """`import tenure` in a fresh interpreter, beside one that imports nothing."""
    codes = ("", "import asyncio", "import tenure")
    seen: dict[str, list[float]] = {code: [] for code in codes}
    for _ in range(bench.sizes.imports):
        for code, times in seen.items():
            times.append(run_time(sys.executable, code))
    nothing, bare_asyncio, ours = (median(seen[code]) * 1000 for code in codes)
    note = f"import asyncio {bare_asyncio:.0f} ms, nothing {nothing:.0f} ms"
    label = "import tenure, the interpreter's start included"
    return [Figure("import", label, ours, "ms", ratio=ours / nothing, of="nothing", base=nothing, note=note, less=True)]


def run_time(python: str, code: str) -> float:
    """Return the seconds that a fresh interpreter takes for this code, its start and end included."""
    began_at = time.perf_counter()
    subprocess.run([python, "-c", code], cwd=ROOT, check=True)
    return time.perf_counter() - began_at
