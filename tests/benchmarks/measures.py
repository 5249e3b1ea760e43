"""The measurements: each starts what it needs on an empty data file and returns its figures."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from tenure import AddError
from tenure.clock import boot
from tenure.inspection import Inspection, inspect
from tests.benchmarks.pingpong import PingPong
from tests.benchmarks.processes import Durability, children, cpu_seconds, resident_bytes, server, worker
from tests.benchmarks.report import Figure
from tests.benchmarks.tasks import MARK, MARKS, app, mark, noop

BATCH = 100
POLL = 0.25
"""Seconds between looks at the record: rare, so that looking costs the server next to nothing."""
REST = 0.01
"""Seconds, on average, before each job of the latency, in which the worker settles and parks its take again."""
DRAIN_LIMIT = 600.0
ENDS = 200
"""Jobs at either end of a drain in which the first hand-out and the last done are looked for."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured; `idle` is in seconds, everything else a count."""

    rounds: int = 5
    trips: int = 10_000
    delays: int = 3_000
    batches: int = 100
    drains: int = 3
    jobs: int = 20_000
    samples: int = 500
    idle: float = 10.0


QUICK = Sizes(rounds=1, trips=500, delays=100, batches=2, drains=1, jobs=500, samples=20, idle=0.5)


@dataclass(frozen=True)
class Bench:
    """What every measurement is given: an empty folder of its own, the other end of P, and how much to measure."""

    folder: Path
    p: PingPong
    sizes: Sizes


class Compared(NamedTuple):
    """Our rate and P, in each round."""

    rounds: tuple[tuple[float, float], ...]

    def figure(self, name: str, label: str, wanted: float | None) -> Figure:
        """Return the medians; `wanted` is the part of P to be reached."""
        rate, p = (median(column) for column in zip(*self.rounds, strict=True))
        ratio = median(rate / p for rate, p in self.rounds)
        words, met = (None, None) if wanted is None else (f"{wanted:g} P", ratio >= wanted)
        return Figure(name, label, rate, "/s", 0, ratio, p, words, met, self.rounds)


def compare(bench: Bench, times: int, ours: Callable[[], float], prepare: Callable[[], object] = bool) -> Compared:
    """Measure P, ours, P in each round, so that a machine that slows down meanwhile slows both.

    `ours` returns a rate; `prepare` is called before each round.
    """
    rounds = []
    for _ in range(times):
        prepare()
        before = bench.p.rate(bench.sizes.trips)
        rate = ours()
        rounds.append((rate, (before + bench.p.rate(bench.sizes.trips)) / 2))
    return Compared(tuple(rounds))


def raw(bench: Bench) -> list[Figure]:
    """P itself."""
    p = median(bench.p.rate(bench.sizes.trips) for _ in range(bench.sizes.rounds))
    return [Figure("p", "P: raw round trips, blocking TCP", p, "/s", ratio=1.0, p=p)]


def delay(bench: Bench, durability: Durability) -> list[Figure]:
    """Sequential `.delay(int)` in one thread."""
    count = bench.sizes.delays
    with _client(bench, durability):

        def ours() -> float:
            began_at = time.perf_counter()
            for number in range(count):
                noop.delay(number)
            return count / (time.perf_counter() - began_at)

        found = compare(bench, bench.sizes.rounds, ours, prepare=lambda: noop.delay(0))
    wanted = 0.14 if durability == "normal" else None
    return [found.figure(f"delay-{durability}", f".delay(int), one by one ({durability})", wanted)]


def add_many(bench: Bench, durability: Durability) -> list[Figure]:
    """`add_many` with a hundred jobs a call; signatures are made within the time."""
    count = bench.sizes.batches * BATCH
    with _client(bench, durability):

        def ours() -> float:
            began_at = time.perf_counter()
            add(count)
            return count / (time.perf_counter() - began_at)

        found = compare(bench, bench.sizes.rounds, ours, prepare=lambda: add(BATCH))
    return [found.figure(f"add-many-{durability}", f"add_many, {BATCH} a call ({durability})", None)]


def drain(bench: Bench, durability: Durability) -> list[Figure]:
    """Empty a queue of no-op jobs with one worker process; its start does not count."""
    ids: list[str] = []
    with _client(bench, durability) as (url, inspection):

        def fill() -> None:
            ids[:] = add(bench.sizes.jobs)

        def ours() -> float:
            return len(ids) / drained(url, inspection, ids)

        found = compare(bench, bench.sizes.drains, ours, prepare=fill)
    wanted = 0.15 if durability == "normal" else None
    label = f"drain of {bench.sizes.jobs:,} no-op jobs ({durability})"
    return [found.figure(f"drain-{durability}", label, wanted)]


def latency(bench: Bench) -> list[Figure]:
    """From the call of `.delay` to the start of the body, one job at a time, nothing else to do."""
    path = bench.folder / "marks"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks,
        _client(bench, "normal") as (url, _),
        worker(url, **{MARKS: str(path)}),
    ):
        marks.bind(str(path))
        marks.settimeout(30)
        seconds = [_mark(marks, number) for number in range(-5, bench.sizes.samples)][5:]
    steps = quantiles(seconds, n=100, method="inclusive")
    p50, p99 = steps[49] * 1000, steps[98] * 1000
    return [
        Figure("latency-p50", "delay to start at rest, p50", p50, "ms", 2, wanted="< 1.5 ms", met=p50 < 1.5),
        Figure("latency-p99", "delay to start at rest, p99", p99, "ms", 2),
    ]


def idle(bench: Bench) -> list[Figure]:
    """What a worker process costs while there is nothing to do; it has run a few jobs before."""
    if sys.platform != "linux":
        return []  # the numbers come from /proc
    with _client(bench, "normal") as (url, inspection), worker(url) as supervisor:
        add(BATCH)
        _until_done(inspection, BATCH)
        [child] = children(supervisor.pid)
        time.sleep(min(1.0, bench.sizes.idle))
        before, began_at = cpu_seconds(child), time.perf_counter()
        time.sleep(bench.sizes.idle)
        share = 100 * (cpu_seconds(child) - before) / (time.perf_counter() - began_at)
        child_size, supervisor_size = (resident_bytes(pid) / 2**20 for pid in (child, supervisor.pid))
    return [
        Figure("idle-memory", "idle worker process, RSS", child_size, "MiB", 1, wanted="< 40 MiB", met=child_size < 40),
        Figure("idle-cpu", "idle worker process, CPU", share, "%", 2, wanted="< 0.5 %", met=share < 0.5),
        Figure("supervisor-memory", "its supervisor, RSS", supervisor_size, "MiB", 1),
    ]


def kept(bench: Bench) -> list[Figure]:
    """What a done job takes in the file: its size after the server has ended, through the number of jobs."""
    jobs = bench.sizes.jobs
    with _client(bench, "normal") as (url, inspection):
        add(jobs)
        with worker(url):
            _until_done(inspection, jobs)
    return [Figure("kept", "kept on disk for a done job", _data(bench).stat().st_size / jobs, "bytes")]


MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "p": raw,
    "delay-normal": lambda bench: delay(bench, "normal"),
    "add-many-normal": lambda bench: add_many(bench, "normal"),
    "drain-normal": lambda bench: drain(bench, "normal"),
    "latency": latency,
    "idle": idle,
    "kept": kept,
    "delay-full": lambda bench: delay(bench, "full"),
    "add-many-full": lambda bench: add_many(bench, "full"),
    "drain-full": lambda bench: drain(bench, "full"),
}
"""The measurements by name, in the order in which they are made and shown."""


def _data(bench: Bench) -> Path:
    return bench.folder / "bench.db"


@contextmanager
def _client(bench: Bench, durability: Durability) -> Iterator[tuple[str, Inspection]]:
    """A server on an empty file, the app's broker set to it."""
    with server(_data(bench), durability) as running, inspect(running.url) as inspection:
        app.use_broker(running.url)
        try:
            yield running.url, inspection
        finally:
            app.close()


def add(count: int) -> list[str]:
    """Add so many no-op jobs, a hundred a call, and return their ids."""
    ids: list[str] = []
    for first in range(0, count, BATCH):
        for job in app.add_many([noop.s(number) for number in range(first, min(first + BATCH, count))]):
            if isinstance(job, AddError):
                raise job
            ids.append(job.id)
    return ids


def drained(url: str, inspection: Inspection, ids: list[str]) -> float:
    """Have a worker run these jobs, which are all that wait, and return the seconds by the server's record.

    Counted from the first hand-out to the last done, so without the worker's start and end.
    """
    done_before = inspection.record()["totals"]["done"]
    with worker(url):
        _until_done(inspection, done_before + len(ids))
    # First in, first out: the first and the last to be run are near the ends of the list.
    handouts = [inspection.job(id)["handouts"][-1] for id in dict.fromkeys(ids[:ENDS] + ids[-ENDS:])]
    begin, end = min(handout["begin_at"] for handout in handouts), max(handout["end_at"] for handout in handouts)
    return float(max(1, end - begin) / 1000)


def _until_done(inspection: Inspection, done: int) -> None:
    give_up_at = time.monotonic() + DRAIN_LIMIT
    while (record := inspection.record())["totals"]["done"] < done:
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"only {record['totals']['done']} of {done} jobs were done in {DRAIN_LIMIT:.0f} s")
        time.sleep(POLL)


def _mark(marks: socket.socket, number: int) -> float:
    """Run one job and return the seconds from the call to the start of its body."""
    time.sleep(REST * random.uniform(0.5, 1.5))
    called_at = boot()
    mark.delay(number)
    while True:
        got, began_at = MARK.unpack(marks.recv(64))
        if got == number:
            return float(began_at - called_at)
