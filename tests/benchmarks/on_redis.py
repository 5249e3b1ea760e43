"""`make bench BROKER=redis`: what `make bench` measures, on a Redis of its own, beside redis-py in the same run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.collecting import collected
from tests.benchmarks.machine import this_machine
from tests.benchmarks.pages import PERFORMANCE, measured_by, put
from tests.benchmarks.plot import PYTHON
from tests.benchmarks.processes import ROOT
from tests.benchmarks.redis_bench import RedisBench
from tests.benchmarks.redis_measures import MEASURES
from tests.benchmarks.report import COLUMNS, Figure, markdown, print_table, write_json
from tests.benchmarks.stage import QUICK, Sizes


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; returns the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.docs and (asked.quick or asked.only):
        parser.error("--docs writes a whole table: it goes with neither --quick nor --only")
    names = asked.only or [*MEASURES]
    if "peers" in names and not asked.python.exists():
        parser.error(f"there is no {asked.python}: `make bench BROKER=redis` makes it")
    machine = this_machine()
    figures, failed = measured(names, QUICK if asked.quick else Sizes(), asked.python)
    print_table(machine, figures)
    write_json(asked.json, machine, asked.quick, figures)
    print(f"\nwritten to {asked.json}")
    if failed:
        print(f"FAILED, with what stands above: {', '.join(failed)}")
        return 1
    if asked.docs:
        table = markdown(COLUMNS, [figure.cells() for figure in figures])
        put(PERFORMANCE, "redis", f"{measured_by('make bench BROKER=redis ARGS=--docs', machine)}\n\n{table}")
        print(f"written into {PERFORMANCE}")
    return 0


def measured(names: Sequence[str], sizes: Sizes, python: Path) -> tuple[list[Figure], list[str]]:
    """Make these measurements, one after the other; returns the figures, and what failed."""
    return collected(names, lambda name, folder: MEASURES[name](RedisBench(folder, sizes, python)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.on_redis", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of everything, to see that it runs")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/explanation/performance.md too")
    parser.add_argument("--only", action="append", choices=(*MEASURES,), metavar="NAME", help="this one only")
    parser.add_argument("--python", type=Path, default=PYTHON, help="the interpreter that has dramatiq")
    parser.add_argument("--json", type=Path, metavar="PATH", default=ROOT / "build" / "bench-redis.json")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
