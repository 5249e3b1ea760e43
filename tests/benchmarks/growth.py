"""`make bench-growth`: how the cost of a job grows with what there is, each curve as a small plot."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tenure import Signature
from tenure.broker import Consumer
from tenure.task import TaskCall
from tests.benchmarks.__main__ import yardstick
from tests.benchmarks.growing import FILL, WORDS, Speeds, fill, parked, speeds
from tests.benchmarks.machine import Machine, this_machine
from tests.benchmarks.pages import PERFORMANCE, PLOTS, measured_by, put
from tests.benchmarks.plot import PYTHON, draw
from tests.benchmarks.processes import ROOT
from tests.benchmarks.stage import QUICK, Bench, Sizes, add, client, rate
from tests.benchmarks.taking import consumer, take_rate
from tests.benchmarks.tasks import app, blob, noop, text

MIB = 2**20
MOST_BYTES = 64 * MIB
"""Bytes of arguments at most that one point of the payload's curve sends."""


class Point(NamedTuple):
    """Jobs a second added one by one, and taken and settled ten at a time, with `x` of something there; P beside it."""

    x: int
    adds: float
    takes: float
    p: float


class Curve(NamedTuple):
    """What grows: `x` says what it is, `sizes` how far."""

    x: str
    sizes: tuple[int, ...]
    points: Callable[[Bench, Sequence[int]], Iterator[Point]]


def depth(bench: Bench, sizes: Sequence[int]) -> Iterator[Point]:
    """With so many jobs of 200 bytes waiting."""
    with client(bench, "normal") as here:
        waiting = 0
        for size in sizes:
            fill(size - waiting)
            waiting = size
            yield _point(bench, size, lambda: speeds(here.url, bench.sizes.delays))


def retained(bench: Bench, sizes: Sequence[int]) -> Iterator[Point]:
    """With so many done jobs kept."""
    with client(bench, "normal") as here, consumer(here.url) as taker:
        done = 0
        for size in sizes:
            if size > done:
                fill(size - done)
                take_rate(taker, size - done, FILL)
                done = size
            yield _point(bench, done, lambda: speeds(here.url, bench.sizes.delays))
            done += bench.sizes.rounds * bench.sizes.delays


def payload(bench: Bench, sizes: Sequence[int]) -> Iterator[Point]:
    """With an argument of so many bytes."""
    with client(bench, "normal", "--max-body", "2MiB") as here, consumer(here.url) as taker:
        for size in sizes:
            count = min(bench.sizes.delays, MOST_BYTES // size)
            yield _point(bench, size, partial(_of_bytes, taker, count, b"x" * size))


def _of_bytes(taker: Consumer, count: int, content: bytes) -> Speeds:
    adds = rate(count, lambda _: blob.delay(content))
    return Speeds(adds, take_rate(taker, count))


def queues(bench: Bench, sizes: Sequence[int]) -> Iterator[Point]:
    """With so many queues, added to in turn, one of them taken from."""
    with client(bench, "normal") as here, consumer(here.url) as taker:
        there = 0
        for size in sizes:
            tasks = [text.options(queue=f"queue-{number}") for number in range(size)]
            add(app, _in_turn(tasks[there:]), size - there, FILL)
            there = size
            yield _point(bench, size, partial(_of_queues, taker, bench.sizes.delays, tasks))


def _of_queues(taker: Consumer, count: int, tasks: Sequence[TaskCall[[str], None]]) -> Speeds:
    adds = rate(count, lambda number: tasks[number % len(tasks)].delay(WORDS))
    add(app, noop.s, count, FILL)
    return Speeds(adds, take_rate(taker, count))


def _in_turn(tasks: Sequence[TaskCall[[str], None]]) -> Callable[[int], Signature[Any]]:
    return lambda number: tasks[number].s(WORDS)


def connections(bench: Bench, sizes: Sequence[int]) -> Iterator[Point]:
    """With so many connections, each of them a worker with a take parked on another queue."""
    with client(bench, "normal", "--max-connections", str(max(sizes) + 100)) as here:
        for size in sizes:
            with parked(here.url, size, "elsewhere"):
                yield _point(bench, size, lambda: speeds(here.url, bench.sizes.delays))


def _point(bench: Bench, x: int, measure: Callable[[], Speeds]) -> Point:
    """Measure some rounds, P beside each, and return the medians."""
    rounds = [(*measure(), bench.limits().p) for _ in range(bench.sizes.rounds)]
    return Point(x, *(median(column) for column in zip(*rounds, strict=True)))


CURVES = {
    "depth": Curve("jobs of 200 bytes that wait in the queue", (100, 1_000, 10_000, 100_000, 1_000_000), depth),
    "payload": Curve("bytes of the argument", (10, 100, 1_000, 10_000, 100_000, MIB), payload),
    "queues": Curve("queues", (1, 10, 100, 1_000, 10_000), queues),
    "connections": Curve("connections with a parked take", (1, 10, 100, 1_000, 5_000), connections),
    "retained": Curve("done jobs that are kept", (100, 1_000, 10_000, 100_000, 1_000_000), retained),
}


def main(arguments: Sequence[str]) -> None:
    """Measure the curves that were asked for."""
    asked = _parser().parse_args(arguments)
    sizes = QUICK if asked.quick else replace(Sizes(), delays=2_000, rounds=3)
    for name in asked.only or CURVES:
        curve, machine = CURVES[name], this_machine()
        with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder, yardstick() as p:
            points = []
            for point in curve.points(Bench(Path(folder), p, sizes), curve.sizes[: 2 if asked.quick else None]):
                points.append(point)
                print(f"{name} {point.x:>9,}: {_words(point)}", flush=True)
        asked.json.mkdir(parents=True, exist_ok=True)
        content = {"machine": asdict(machine), "quick": asked.quick, "points": [point._asdict() for point in points]}
        (asked.json / f"growth-{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        if asked.docs and not asked.quick:
            _document(name, curve, machine, points, asked.python)


def _words(point: Point) -> str:
    adds, takes = point.adds / point.p, point.takes / point.p
    return f"added {point.adds:,.0f}/s ({adds:.3f} P), taken and settled {point.takes:,.0f}/s ({takes:.3f} P)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two smallest of each, to see that it runs")
    parser.add_argument("--docs", action="store_true", help="draw the plots into docs/explanation/performance.md too")
    parser.add_argument("--only", action="append", choices=tuple(CURVES), metavar="NAME", help=", ".join(CURVES))
    parser.add_argument("--python", type=Path, default=PYTHON, help="the interpreter that has matplotlib")
    parser.add_argument("--json", type=Path, default=ROOT / "build", metavar="FOLDER", help="where figures are written")
    return parser


def _document(name: str, curve: Curve, machine: Machine, points: Sequence[Point], python: Path) -> None:
    """Draw the plot, and write it into the page on performance."""
    lines = {
        "added, one by one": [(point.x, point.adds) for point in points],
        "taken and settled, ten at a time": [(point.x, point.takes) for point in points],
    }
    title = f"Jobs a second over {curve.x}, {machine.date[:10]}"
    draw(python, PLOTS / f"{name}.png", title=title, x=curve.x, y="jobs a second", lines=lines)
    ends = "\n".join(f"- At {point.x:,}: {_words(point)}." for point in (points[0], points[-1]))
    command = f'make bench-growth ARGS="--docs --only {name}"'
    put(
        PERFORMANCE,
        f"growth-{name}",
        f"![{title}](performance/{name}.png)\n\n{measured_by(command, machine)}\n\n{ends}",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
