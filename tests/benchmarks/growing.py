"""What takes long: a million jobs that wait, a million that fall due, ten thousand parked takes, more processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tenure import Signature
from tests.benchmarks.draining import QUEUE
from tests.benchmarks.processes import (
    ROOT,
    ended,
    producers,
    resident_bytes,
    worker,
)
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import Bench, Client, add, against, client, compare, rate
from tests.benchmarks.taking import consumer, take_rate
from tests.benchmarks.tasks import app, noop, text
from tests.benchmarks.team import Team, label

WORDS = "x" * 200
FILL = 1_000
REST = 0.002
"""Seconds between two calls of somebody who watches for stalls."""
OTHERS = "others"


class Speeds(NamedTuple):
    """Jobs a second: added one by one, and taken and settled ten at a time."""

    adds: float
    takes: float


def speeds(url: str, count: int) -> Speeds:
    """Measure both at what is there now; as many jobs are there afterwards."""
    adds = rate(count, lambda _: text.delay(WORDS))
    with consumer(url) as taker:
        return Speeds(adds, take_rate(taker, count))


def fill(count: int) -> None:
    """Add so many jobs of 200 bytes."""
    add(app, lambda _: text.s(WORDS), count, FILL)


def backlog(bench: Bench) -> list[Figure]:
    """Add and take rates with a long queue beside those with an empty one; memory, file, restart."""
    count, jobs = bench.sizes.delays, bench.sizes.backlog
    rounds = bench.sizes.rounds
    with client(bench, "normal") as here:
        speeds(here.url, count)
        empty = [speeds(here.url, count) for _ in range(rounds)]
        small = _rss(here)
        began_at = time.perf_counter()
        fill(jobs)
        filled = jobs / (time.perf_counter() - began_at)
        full = [speeds(here.url, count) for _ in range(rounds)]
        large = _rss(here)
    size = bench.data("normal").stat().st_size
    began_at = time.perf_counter()
    with client(bench, "normal"):
        noop.delay(0)
        restart = time.perf_counter() - began_at
    pairs = list(zip(full, empty, strict=True))
    words = f"with {jobs:,} waiting"
    memory = _memory("backlog-memory", f"server's RSS {words}", large, small)
    return [
        Figure("backlog-fill", f"adding {jobs:,} jobs of 200 bytes, {FILL} a call", filled, "/s"),
        against("empty", [(one.adds, other.adds) for one, other in pairs]).figure("backlog-add", f"adds {words}", 0.8),
        against("empty", [(one.takes, other.takes) for one, other in pairs]).figure(
            "backlog-take", f"takes {words}, 10 at a time, settled", 0.8
        ),
        *memory,
        Figure("backlog-file", f"data file {words}", size / 2**20, "MiB", less=True),
        Figure("backlog-restart", f"start of the server {words}, to the first answer", restart, "s", 2, less=True),
    ]


def _rss(here: Client) -> float:
    return resident_bytes(here.server.process.pid) / 2**20 if sys.platform == "linux" else 0.0


def _memory(name: str, label: str, mib: float, empty: float) -> list[Figure]:
    if sys.platform != "linux":
        return []  # the number comes from /proc
    note = f"{empty:.0f} MiB empty"
    return [Figure(name, label, mib, "MiB", wanted="150 MiB", met=mib < 150, note=note, less=True)]


def watch(seconds: float) -> list[float]:
    """Add a job to another queue now and again for so long, and return how long each call took."""
    other = noop.options(queue=OTHERS)
    took, until = [], time.perf_counter() + seconds
    while (began_at := time.perf_counter()) < until:
        other.delay(0)
        took.append(time.perf_counter() - began_at)
        time.sleep(REST)
    return took


def _stall(name: str, label: str, took: list[float], quiet: list[float]) -> Figure:
    longest = max(took) * 1000
    p99 = quantiles(took, n=100, method="inclusive")[98] * 1000
    note = f"p99 {p99:.1f} ms; at rest longest {max(quiet) * 1000:.1f} ms"
    return Figure(name, label, longest, "ms", 1, wanted="100 ms", met=longest < 100, note=note, less=True)


def scheduled(bench: Bench) -> list[Figure]:
    """How long others wait while a million jobs fall due within ten seconds."""
    jobs, due = bench.sizes.scheduled, bench.sizes.due
    first = max(1, jobs // 50)
    with client(bench, "normal") as here:
        began_at = time.perf_counter()
        add(app, _at(datetime.now(UTC) + timedelta(hours=1), 0), first, FILL)
        # Twice the time that it should take to add the others, so that none falls due before the last is there.
        expected = (time.perf_counter() - began_at) * jobs / first
        quiet, empty = watch(bench.sizes.watched / 2), _rss(here)
        begin = datetime.now(UTC) + timedelta(seconds=2 * expected + 0.2)
        add(app, _at(begin, due / jobs), jobs, FILL)
        behind = (datetime.now(UTC) - begin).total_seconds()
        time.sleep(max(0.0, -behind))
        took = watch(1.2 * due)
        late = jobs - _ready(here)
        memory = _memory("scheduled-memory", f"server's RSS with {jobs:,} scheduled", _rss(here), empty)
    label = f"longest stall while {jobs:,} jobs fall due within {due:g} s"
    if behind > 0:  # the machine has become so slow that the first ones fell due while the last were added
        label += f" (watched from {behind:.1f} s after the first)"
    return [
        _stall("scheduled-stall", label, took, quiet),
        Figure("scheduled-late", f"of them not ready {0.2 * due:g} s after the last was due", late, "jobs", less=True),
        *memory,
    ]


def _at(begin: datetime, step: float) -> Callable[[int], Signature[Any]]:
    return lambda number: noop.options(run_at=begin + timedelta(seconds=number * step)).s(number)


def _ready(here: Client) -> int:
    return next(int(row["ready"]) for row in here.inspection.queues() if row["name"] == QUEUE)


@contextmanager
def parked(url: str, count: int, queue: str) -> Iterator[int]:
    """Park so many takes on a queue, by a process of its own, whose id is returned."""
    command = [sys.executable, "-m", "tests.benchmarks.parkers", str(urlsplit(url).port), str(count), queue]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with ended(process):
        assert process.stdout is not None
        if process.stdout.readline() != "parked\n":
            raise RuntimeError("the takes could not be parked; what was said stands above")
        yield process.pid


def crowded(bench: Bench) -> list[Figure]:
    """How long others wait beside ten thousand parked takes, and while these get a job each."""
    count, seconds = bench.sizes.parked, bench.sizes.watched
    with client(bench, "normal", "--max-connections", str(count + 100)) as here:
        empty = _rss(here)
        quiet = watch(seconds / 2)
        with parked(here.url, count, QUEUE):
            took = watch(seconds)
            woken = rate(min(count, bench.sizes.delays), noop.delay)
            after = watch(seconds / 2)
            memory = _memory("parked-memory", f"server's RSS with {count:,} connections", _rss(here), empty)
    return [
        _stall("parked-stall", f"longest stall beside {count:,} parked takes", took + after, quiet),
        Figure("parked-wake", f".delay(int), each for one of {count:,} parked takes", woken, "/s"),
        *memory,
    ]


def teams(bench: Bench) -> list[Figure]:
    """Two producers and some worker processes, end to end, all at once."""
    figures = []
    for processes in bench.sizes.teams:
        folder = bench.folder / str(processes)
        folder.mkdir()
        figures.append(_team(replace(bench, folder=folder), processes))
    return figures


def _team(bench: Bench, processes: int) -> Figure:
    with (
        client(bench, "normal") as here,
        producers(here.url, 2) as pair,
        worker(here.url, processes=processes) as supervisor,
    ):
        team = Team(here.inspection, here.server.process.pid, pair, supervisor.pid, bench.sizes.jobs)
        found = compare(bench, bench.sizes.drains, team.round)
    return found.figure(f"team-{processes}", label(processes), None, team.note())
