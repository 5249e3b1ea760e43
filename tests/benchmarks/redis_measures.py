"""The measurements on Redis by name, in the order in which they are made and shown."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from statistics import median, quantiles

from tests.benchmarks import coroutines, tasks
from tests.benchmarks.adding import KIB
from tests.benchmarks.draining import Drains
from tests.benchmarks.peers.contenders import CONTENDERS
from tests.benchmarks.peers.contest import Amounts, run
from tests.benchmarks.processes import children, cpu_seconds, producers, resident_bytes, worker
from tests.benchmarks.redis_bench import Fsync, Raw, RedisBench, compare, here
from tests.benchmarks.report import Figure
from tests.benchmarks.resting import until_begun
from tests.benchmarks.stage import BATCH, add, against, appends, rate
from tests.benchmarks.tasks import MARKS, app, noop, text
from tests.benchmarks.team import Team, label

EVALSHA = "raw EVALSHA"
EVALSHA_AND_F = "1/(1/raw EVALSHA + 1/F)"
PIPELINED = "raw pipelined"
Measure = Callable[[RedisBench], list[Figure]]


def limits(bench: RedisBench) -> list[Figure]:
    """Return what redis-py makes of the same server."""
    with here(bench, "everysec") as at:
        singles = [at.raw.evalsha(bench.sizes.trips) for _ in range(bench.sizes.rounds)]
        many = [at.raw.pipelined(BATCH * bench.sizes.batches) for _ in range(bench.sizes.rounds)]
    return [
        _limit("raw-evalsha", "redis-py: EVALSHA of an empty script, one by one", singles),
        _limit("raw-pipelined", f"redis-py: the same, {BATCH} a write", many),
    ]


def _limit(name: str, label: str, rates: list[float]) -> Figure:
    return Figure(name, label, median(rates), "/s", note=f"{min(rates):,.0f} to {max(rates):,.0f}")


def delay(bench: RedisBench, fsync: Fsync) -> list[Figure]:
    """Sequential `.delay(int)` in one thread, and with a text of 1 KiB right after it."""
    count = bench.sizes.delays // (1 if fsync == "everysec" else 5)
    texts: list[tuple[float, float]] = []

    def ours() -> float:
        ints = rate(count, noop.delay)
        texts.append((rate(count, lambda _: text.delay(KIB)), ints))
        return ints

    with here(bench, fsync) as at:
        noop.delay(0)
        if fsync == "always":
            found = compare(EVALSHA_AND_F, bench.sizes.rounds, lambda: _with_disk(bench, at.raw, count), ours)
        else:
            found = compare(EVALSHA, bench.sizes.rounds, lambda: at.raw.evalsha(count), ours)
    return [
        found.figure(f"delay-{fsync}", f".delay(int), one by one ({fsync})", 0.7),
        against("int rate", texts).figure(f"delay-kib-{fsync}", f".delay(1 KiB str) ({fsync})", 0.9),
    ]


def _with_disk(bench: RedisBench, raw: Raw, count: int) -> float:
    """Return what calls one by one could come to at best where each waits for the disk too."""
    return 1 / (1 / raw.evalsha(count) + 1 / appends(bench.folder, bench.sizes.appends))


def add_many(bench: RedisBench) -> list[Figure]:
    """`add_many` with a hundred jobs a call."""
    count = BATCH * bench.sizes.batches
    with here(bench, "everysec") as at:
        add(app, noop.s, BATCH)
        found = compare(
            PIPELINED, bench.sizes.rounds, lambda: at.raw.pipelined(count), lambda: rate_of_add(bench.sizes.batches)
        )
    return [found.figure("add-many", f"add_many, {BATCH} a call (everysec)", None)]


def rate_of_add(batches: int) -> float:
    """Return the jobs a second of so many batches."""
    return BATCH * rate(batches, lambda _: add(app, noop.s, BATCH))


def crowd(bench: RedisBench) -> list[Figure]:
    """Several producers at once, each a program of its own."""
    count, each = bench.sizes.producers, bench.sizes.each
    with here(bench, "everysec") as at, producers(at.url, count) as crowd:

        def ours() -> float:
            begin, end = crowd.add(each)
            return count * each / (end - begin)

        found = compare(EVALSHA, bench.sizes.rounds, lambda: at.raw.evalsha(each), ours)
    return [found.figure("crowd", f"{count} producers at once (everysec)", None)]


def drain(bench: RedisBench, fsync: Fsync) -> list[Figure]:
    """Empty a queue of no-op jobs with one worker process of ten slots, and what that costs."""
    count = bench.sizes.jobs
    with here(bench, fsync) as at, worker(at.url) as supervisor:
        drains = Drains(at.inspection, supervisor.pid, tasks.app, tasks.noop.s)
        before = at.raw.used_memory()
        found = compare(
            EVALSHA,
            bench.sizes.drains,
            lambda: at.raw.evalsha(bench.sizes.trips),
            drains.drain,
            prepare=lambda: drains.fill(count),
        )
        kept = (at.raw.used_memory() - before) / (count * bench.sizes.drains)
    figures = [found.figure(f"drain-{fsync}", f"drain of {count:,} no-op jobs ({fsync})", None)]
    if fsync == "everysec":
        figures.append(Figure("kept", "memory of Redis for a done job that is kept", kept, "bytes"))
        if sys.platform == "linux":
            figures.append(Figure("worker-cpu", "worker's CPU for 1,000 no-op jobs", median(drains.cpu), "s", 3))
    return figures


def drain_coroutines(bench: RedisBench) -> list[Figure]:
    """The same with a coroutine that does nothing, in a process with a hundred places for coroutines."""
    with here(bench, "everysec") as at, worker(at.url, app=coroutines.__name__) as supervisor:
        drains = Drains(at.inspection, supervisor.pid, coroutines.app, coroutines.noop.s)
        found = compare(
            EVALSHA,
            bench.sizes.drains,
            lambda: at.raw.evalsha(bench.sizes.trips),
            drains.drain,
            prepare=lambda: drains.fill(bench.sizes.jobs),
        )
    return [found.figure("drain-async", f"drain of {bench.sizes.jobs:,} async no-op jobs, 100 slots", None)]


def rest(bench: RedisBench) -> list[Figure]:
    """A worker at rest: how soon it begins a job beside a bare push and pop, and what it costs without any."""
    path = bench.folder / "marks"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks,
        here(bench, "everysec") as at,
        worker(at.url, environment={MARKS: str(path)}) as supervisor,
    ):
        marks.bind(str(path))
        marks.settimeout(30)
        samples = bench.sizes.samples
        before = at.raw.push_and_pop(samples)
        ours = [until_begun(marks, number) for number in range(-5, samples)][5:]
        bare = before + at.raw.push_and_pop(samples)
        idle = _idle(bench, supervisor.pid, at.pid)
    return [*(_time(ours, bare, percent, wanted) for percent, wanted in ((50, 1.5), (99, None))), *idle]


def _time(ours: list[float], bare: list[float], percent: int, wanted: float | None) -> Figure:
    its, raw = (quantiles(seconds, n=100, method="inclusive")[percent - 1] for seconds in (ours, bare))
    return Figure(
        f"latency-p{percent}",
        f"delay to start at rest, p{percent}",
        its * 1000,
        "ms",
        2,
        ratio=its / raw,
        of="raw push-pop",
        base=raw * 1000,
        wanted=None if wanted is None else f"{wanted:g} raw push-pop",
        met=None if wanted is None else its <= wanted * raw,
        note=f"raw {raw * 1000:.2f} ms",
        less=True,
    )


def _idle(bench: RedisBench, supervisor: int, server: int) -> list[Figure]:
    if sys.platform != "linux":
        return []  # the numbers come from /proc
    [child] = children(supervisor)
    before, began_at = [cpu_seconds(pid) for pid in (child, server)], time.perf_counter()
    time.sleep(bench.sizes.idle)
    took = time.perf_counter() - began_at
    shares = [100 * (cpu_seconds(pid) - early) / took for pid, early in zip((child, server), before, strict=True)]
    return [
        Figure("idle-memory", "idle worker process, RSS", resident_bytes(child) / 2**20, "MiB", 1, less=True),
        Figure("idle-cpu", "idle worker process, CPU", shares[0], "%", 2, less=True),
        Figure("idle-server-cpu", "Redis meanwhile, CPU", shares[1], "%", 2, less=True),
    ]


def teams(bench: RedisBench) -> list[Figure]:
    """Two producers and some worker processes, end to end, all at once."""
    return [_team(bench, processes) for processes in bench.sizes.teams]


def _team(bench: RedisBench, processes: int) -> Figure:
    with (
        here(bench, "everysec") as at,
        producers(at.url, 2) as pair,
        worker(at.url, processes=processes) as supervisor,
    ):
        team = Team(at.inspection, at.pid, pair, supervisor.pid, bench.sizes.jobs)
        found = compare(EVALSHA, bench.sizes.drains, lambda: at.raw.evalsha(bench.sizes.trips), team.round)
    return found.figure(f"team-{processes}", label(processes), None, team.note())


def peers(bench: RedisBench) -> list[Figure]:
    """Drains by one process of ten threads beside dramatiq's, each on a Redis that keeps nothing on disk, in turn."""
    sizes = bench.sizes
    amounts = Amounts(sizes.jobs, 5, 0.1, 0.1)
    ours, theirs = (next(one for one in CONTENDERS if one.name == name) for name in ("tenure-redis", "dramatiq-redis"))
    rounds = [tuple(run(one, bench.python, amounts) for one in (ours, theirs)) for _ in range(max(1, sizes.drains))]
    return [
        against("dramatiq", [(own.drains, its.drains) for own, its in rounds]).figure(
            "drain-beside-dramatiq", f"drain of {sizes.jobs:,} no-op jobs (no disk, results off)", 2.0
        ),
        against("dramatiq", [(own.adds, its.adds) for own, its in rounds]).figure(
            "adds-beside-dramatiq", "added one by one (no disk, results off)", None
        ),
    ]


MEASURES: dict[str, Measure] = {
    "limits": limits,
    "delay-everysec": lambda bench: delay(bench, "everysec"),
    "delay-always": lambda bench: delay(bench, "always"),
    "add-many": add_many,
    "crowd": crowd,
    "drain-everysec": lambda bench: drain(bench, "everysec"),
    "drain-always": lambda bench: drain(bench, "always"),
    "drain-async": drain_coroutines,
    "rest": rest,
    "teams": teams,
    "peers": peers,
}
