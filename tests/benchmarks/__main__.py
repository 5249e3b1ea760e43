"""`make bench`: measure speed and size, print one table, write a JSON file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tenure.codec import encode_body
from tenure.signature import NO_OPTIONS
from tenure.wire import encode
from tests.benchmarks.measures import MEASURES, QUICK, Bench, Sizes
from tests.benchmarks.pingpong import ping_pong
from tests.benchmarks.processes import ROOT
from tests.benchmarks.report import Figure, print_table, this_machine, write_json
from tests.benchmarks.tasks import noop


def main(arguments: Sequence[str]) -> None:
    """Measure what was asked for."""
    asked = _parser().parse_args(arguments)
    sizes = QUICK if asked.quick else Sizes()
    machine = this_machine()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder, ping_pong(*_lines()) as p:
        for name in asked.only or MEASURES:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            own = Path(folder) / name
            own.mkdir(exist_ok=True)
            figures += MEASURES[name](Bench(own, p, sizes))
    print_table(machine, figures)
    if asked.quick:
        print("\nQuick: this shows that the benchmarks run; the numbers mean little.")
    write_json(asked.json, machine, asked.quick, figures)
    print(f"\nwritten to {asked.json}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure Tenure's speed and size; docs/reference/benchmarks.md says what each figure means.",
    )
    parser.add_argument("--quick", action="store_true", help="a few of everything, to see that it runs")
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
        choices=tuple(MEASURES),
        metavar="NAME",
        help=f"this measurement only; may be given again. One of: {', '.join(MEASURES)}",
    )
    return parser


def _lines() -> tuple[bytes, bytes]:
    """The line of one `.delay(int)` and its answer, for P to send lines of the same lengths."""
    message = noop.message((1_000,), {}, NO_OPTIONS)
    return encode.add(message, encode_body(message)), b"ok %b created\n" % message.id.encode()


if __name__ == "__main__":
    main(sys.argv[1:])
