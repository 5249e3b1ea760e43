"""What all measurements share: how much is measured, servers to measure, and rates beside the limits of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tenure import AddError, App, Signature
from tenure.inspection import Inspection, inspect
from tests.benchmarks import coroutines, tasks
from tests.benchmarks.pingpong import PingPong
from tests.benchmarks.processes import Durability, Running, server
from tests.benchmarks.report import Figure

BATCH = 100
POLL = 0.1
"""Seconds between looks at the record: rare, so that looking costs the server next to nothing."""
LIMIT = 900.0
"""Seconds after which jobs that are not done are waited for no longer."""
APPENDED = b"x" * 200


@dataclass(frozen=True)
class Sizes:
    """How much is measured; `idle`, `due` and `watched` are in seconds, everything else a count."""

    rounds: int = 5
    trips: int = 10_000
    appends: int = 2_000
    delays: int = 3_000
    batches: int = 100
    producers: int = 8
    each: int = 1_000
    drains: int = 3
    jobs: int = 20_000
    samples: int = 500
    idle: float = 10.0
    imports: int = 9
    backlog: int = 1_000_000
    scheduled: int = 1_000_000
    due: float = 10.0
    parked: int = 10_000
    watched: float = 10.0
    teams: tuple[int, ...] = (1, 2, 4)


QUICK = Sizes(
    rounds=1,
    trips=200,
    appends=20,
    delays=20,
    batches=1,
    producers=2,
    each=20,
    drains=1,
    jobs=200,
    samples=5,
    idle=0.1,
    imports=1,
    backlog=2_000,
    scheduled=2_000,
    due=0.2,
    parked=20,
    watched=0.1,
    teams=(1,),
)


@dataclass(frozen=True)
class Bench:
    """What every measurement is given: an empty folder of its own, the other end of P, and how much to measure."""

    folder: Path
    p: PingPong
    sizes: Sizes

    def limits(self, disk: bool = False) -> Limits:
        """Measure what the machine can do just now."""
        trips = self.sizes.trips
        f = appends(self.folder, self.sizes.appends) if disk else 0.0
        return Limits(self.p.rate(trips), self.p.rate_on_one_core(trips), f)

    def data(self, durability: Durability) -> Path:
        """Where a server of this measurement keeps its jobs."""
        return self.folder / f"{durability}.db"


class Limits(NamedTuple):
    """P, P with both ends on one core (None: not to be had here), and F (0: not measured)."""

    p: float
    one_core: float | None
    f: float


def appends(folder: Path, count: int) -> float:
    """F: how many appends of 200 bytes a second the disk of this folder takes, each followed by fdatasync."""
    path = folder / "appends"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        began_at = time.perf_counter()
        for _ in range(count):
            os.write(file, APPENDED)
            os.fdatasync(file)
        return count / (time.perf_counter() - began_at)
    finally:
        os.close(file)
        path.unlink()


class Base(NamedTuple):
    """What a rate stands beside."""

    name: str
    of: Callable[[Limits], float]
    disk: bool = False


OF_P = Base("P", lambda limits: limits.p)
OF_P_AND_F = Base("1/(1/P + 1/F)", lambda limits: 1 / (1 / limits.p + 1 / limits.f), disk=True)


class Round(NamedTuple):
    """Our rate, what it stands beside, and P on one core, all of the same moments."""

    rate: float
    base: float
    one_core: float | None


class Compared(NamedTuple):
    """Our rate in each round, beside `of`."""

    of: str
    rounds: tuple[Round, ...]

    def figure(self, name: str, label: str, wanted: float | None, note: str = "") -> Figure:
        """Return the medians; `wanted` is the part of the base to be reached."""
        rate, base = median(one.rate for one in self.rounds), median(one.base for one in self.rounds)
        ratio = median(one.rate / one.base for one in self.rounds)
        alone = [one.rate / one.one_core for one in self.rounds if one.one_core is not None]
        return Figure(
            name,
            label,
            rate,
            "/s",
            ratio=ratio,
            of=self.of,
            base=base,
            one_core=median(alone) if alone else None,
            wanted=None if wanted is None else f"{wanted:g} {self.of}",
            met=None if wanted is None else ratio >= wanted,
            note=note,
            rounds=tuple((one.rate, one.base) for one in self.rounds),
        )


def compare(
    bench: Bench, times: int, ours: Callable[[], float], base: Base = OF_P, prepare: Callable[[], object] = bool
) -> Compared:
    """Measure the limits, ours, the limits in each round, so that a machine that slows down meanwhile slows all.

    `ours` returns a rate; `prepare` is called before each round.
    """
    rounds = []
    for _ in range(times):
        prepare()
        before, rate, after = bench.limits(base.disk), ours(), bench.limits(base.disk)
        alone = None if before.one_core is None or after.one_core is None else (before.one_core + after.one_core) / 2
        rounds.append(Round(rate, (base.of(before) + base.of(after)) / 2, alone))
    return Compared(base.name, tuple(rounds))


def against(name: str, rounds: Iterable[tuple[float, float]]) -> Compared:
    """Compare our rate with another rate of ours, given for each round."""
    return Compared(name, tuple(Round(rate, base, None) for rate, base in rounds))


def rate(count: int, action: Callable[[int], object]) -> float:
    """Call this so many times, with 0, 1, 2 …, and return how many times a second it was."""
    began_at = time.perf_counter()
    for number in range(count):
        action(number)
    return count / (time.perf_counter() - began_at)


class Client(NamedTuple):
    """A server, and a view of it; both apps' broker is set to it."""

    url: str
    server: Running
    inspection: Inspection


@contextmanager
def client(bench: Bench, durability: Durability, *options: str) -> Iterator[Client]:
    """A server on this measurement's file, empty at first."""
    with server(bench.data(durability), durability, *options) as running, inspect(running.url) as inspection:
        for app in (tasks.app, coroutines.app):
            app.use_broker(running.url)
        try:
            yield Client(running.url, running, inspection)
        finally:
            tasks.app.close()
            coroutines.app.close()


def add(app: App, make: Callable[[int], Signature[Any]], count: int, batch: int = BATCH) -> list[str]:
    """Add so many jobs, some a call, and return their ids; `make` is called with 0, 1, 2 …"""
    ids: list[str] = []
    for first in range(0, count, batch):
        for job in app.add_many([make(number) for number in range(first, min(first + batch, count))]):
            if isinstance(job, AddError):
                raise job
            ids.append(job.id)
    return ids


def until_done(inspection: Inspection, done: int) -> None:
    """Wait until so many jobs are done on this server."""
    give_up_at = time.monotonic() + LIMIT
    while (record := inspection.record())["totals"]["done"] < done:
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"only {record['totals']['done']} of {done} jobs were done in {LIMIT:.0f} s")
        time.sleep(POLL)
