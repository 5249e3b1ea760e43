"""`make bench`: measure speed and size, print one table, write a JSON file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tenure.codec import encode_body
from tenure.signature import NO_OPTIONS
from tenure.wire import encode
from tests.benchmarks.collecting import collected
from tests.benchmarks.machine import Machine, this_machine
from tests.benchmarks.measures import LONG, SHORT
from tests.benchmarks.pages import PERFORMANCE, measured_by, put
from tests.benchmarks.pingpong import PingPong, ping_pong
from tests.benchmarks.processes import ROOT
from tests.benchmarks.report import COLUMNS, Figure, markdown, print_table, write_json
from tests.benchmarks.stage import QUICK, Bench, Sizes
from tests.benchmarks.tasks import noop


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; returns the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    by_hand = asked.only == ["backlog"] and asked.backlog is not None
    if asked.docs and (asked.quick or (asked.only and not by_hand)):
        parser.error("--docs writes a whole table: it goes with neither --quick nor --only (but backlog and --backlog)")
    names = asked.only or [*(LONG if asked.long else SHORT)]
    sizes = QUICK if asked.quick else Sizes()
    if asked.backlog:
        sizes = replace(sizes, backlog=asked.backlog)
    machine = this_machine()
    figures, failed = measured(names, sizes)
    print_table(machine, figures)
    if asked.quick:
        print("\nQuick: this shows that the benchmarks run; the numbers mean little.")
    write_json(asked.json, machine, asked.quick, figures)
    print(f"\nwritten to {asked.json}")
    if failed:
        print(f"FAILED, with what stands above: {', '.join(failed)}")
        return 1
    if asked.docs:
        if by_hand:
            _document("backlog", f'make bench ARGS="--docs --only backlog --backlog {asked.backlog}"', machine, figures)
        else:
            command = "bench-long" if asked.long else "bench"
            _document(command, f"make {command} ARGS=--docs", machine, figures)
    return 0


def measured(names: Sequence[str], sizes: Sizes) -> tuple[list[Figure], list[str]]:
    """Make these measurements, one after the other; returns the figures, and what failed."""
    with yardstick() as p:
        return collected(names, lambda name, folder: (SHORT | LONG)[name](Bench(folder, p, sizes)))


@contextmanager
def yardstick() -> Iterator[PingPong]:
    """P, with the lines of one `.delay(int)` and its answer."""
    message = noop.message((1_000,), {}, NO_OPTIONS)
    answer = b"ok %b created\n" % message.id.encode()
    with ping_pong(encode.add(message, encode_body(message)), answer) as p:
        yield p


def _document(part: str, command: str, machine: Machine, figures: Sequence[Figure]) -> None:
    """Write the table into its part of the page on performance."""
    table = markdown(COLUMNS, [figure.cells() for figure in figures])
    put(PERFORMANCE, part, f"{measured_by(command, machine)}\n\n{table}")
    print(f"written into {PERFORMANCE}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure Tenure's speed and size; docs/reference/benchmarks.md says what each figure means.",
    )
    parser.add_argument("--quick", action="store_true", help="a few of everything, to see that it runs")
    parser.add_argument("--long", action="store_true", help="what takes minutes each, instead of the rest")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/explanation/performance.md too")
    parser.add_argument("--backlog", type=int, metavar="N", help="the jobs of `--only backlog` (default: 1,000,000)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        default=ROOT / "build" / "bench.json",
        help="where the figures are written (default: build/bench.json)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=(*SHORT, *LONG),
        metavar="NAME",
        help=f"this measurement only; may be given again. One of: {', '.join(SHORT)}; long: {', '.join(LONG)}",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
