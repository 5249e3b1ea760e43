"""How fast jobs are added, and the limits beside it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from statistics import median

from tests.benchmarks.processes import Durability, producers
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import BATCH, OF_P, OF_P_AND_F, Bench, add, against, client, compare, rate
from tests.benchmarks.tasks import app, noop, text

KIB = "x" * 1024


def limits(bench: Bench) -> list[Figure]:
    """P, P on one core, and F."""
    found = [bench.limits(disk=True) for _ in range(bench.sizes.rounds)]
    figures = [
        _limit("p", "P: round trips, blocking TCP", (one.p for one in found), "P"),
        _limit("f", "F: fdatasync of 200-byte appends", (one.f for one in found)),
    ]
    alone = [one.one_core for one in found if one.one_core is not None]
    if alone:
        figures.insert(1, _limit("p-one-core", "P with both ends on one core", alone))
    return figures


def _limit(name: str, label: str, rates: Iterable[float], of: str = "") -> Figure:
    seen = sorted(rates)
    note = f"{seen[0]:,.0f} to {seen[-1]:,.0f}"
    value = median(seen)
    return Figure(name, label, value, "/s", ratio=1.0 if of else None, of=of, base=value if of else None, note=note)


def delay(bench: Bench, durability: Durability) -> list[Figure]:
    """Sequential `.delay(int)` in one thread, and with a text of 1 KiB right after it."""
    count = bench.sizes.delays
    texts: list[tuple[float, float]] = []
    base, wanted = (OF_P, 0.27) if durability == "normal" else (OF_P_AND_F, 0.5)

    def ours() -> float:
        ints = rate(count, noop.delay)
        texts.append((rate(count, lambda _: text.delay(KIB)), ints))
        return ints

    def warm() -> None:
        noop.delay(0)
        text.delay(KIB)

    with client(bench, durability):
        found = compare(bench, bench.sizes.rounds, ours, base, prepare=warm)
    return [
        found.figure(f"delay-{durability}", f".delay(int), one by one ({durability})", wanted),
        against("int rate", texts).figure(f"delay-kib-{durability}", f".delay(1 KiB str) ({durability})", 0.9),
    ]


def add_many(bench: Bench, durability: Durability) -> list[Figure]:
    """`add_many` with a hundred jobs a call; signatures are made within the time."""
    batches = bench.sizes.batches

    def ours() -> float:
        return BATCH * rate(batches, lambda _: add(app, noop.s, BATCH))

    with client(bench, durability):
        found = compare(bench, bench.sizes.rounds, ours, prepare=lambda: add(app, noop.s, BATCH))
    wanted = 0.8 if durability == "full" else None
    return [found.figure(f"add-many-{durability}", f"add_many, {BATCH} a call ({durability})", wanted)]


def crowd(bench: Bench) -> list[Figure]:
    """Several producers at once, each a program of its own, at `full` and at `normal` in turn."""
    count, each = bench.sizes.producers, bench.sizes.each
    rates: list[dict[Durability, float]] = []
    durabilities: tuple[Durability, ...] = ("normal", "full")
    with ExitStack() as stack:
        crowds = {}
        for durability in durabilities:
            url = stack.enter_context(client(bench, durability)).url
            crowds[durability] = stack.enter_context(producers(url, count))
        for _ in range(bench.sizes.rounds):
            seen = {}
            for durability, one in crowds.items():
                begin, end = one.add(each)
                seen[durability] = count * each / (end - begin)
            rates.append(seen)
    normal = median(one["normal"] for one in rates)
    return [
        Figure("crowd-normal", f"{count} producers at once (normal)", normal, "/s"),
        against("normal", [(one["full"], one["normal"]) for one in rates]).figure(
            "crowd-full", f"{count} producers at once (full)", 0.8
        ),
    ]
