"""Breaks a worker, its server and what is between them, one fault a row, and prints what was reached."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from tests.faults.rows.rows import ROWS, Row
from tests.faults.rows.scene import Reached, Scene


def main(arguments: Sequence[str]) -> int:
    """Run the rows that were asked for, or all; returns 1 when one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.rows", description=__doc__)
    names = [one.name for one in ROWS]
    parser.add_argument("row", nargs="*", choices=[[], *names], help=f"one of {', '.join(names)}; all where none is")
    asked = parser.parse_args(arguments).row or names
    return report([(one, reach(one)) for one in ROWS if one.name in asked])


def reach(row: Row) -> Reached:
    """Run one row on processes of its own; a promise that is broken on the way says which, below their logs."""
    print(f"{row.fault} ...", file=sys.stderr, flush=True)
    logs = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="tenure-faults-") as place:
        try:
            with redirect_stdout(logs), Scene(Path(place)) as scene:
                return row.run(scene)
        except (AssertionError, OSError) as error:
            print(logs.getvalue(), file=sys.stderr)
            return Reached(str(error).strip() or type(error).__name__, False)


def report(reached: Sequence[tuple[Row, Reached]]) -> int:
    """Print the table; returns 1 when a row does not hold."""
    table = [("fault", "reached", "must", "holds")]
    table += [(row.fault, one.text.splitlines()[0], row.must, "yes" if one.holds else "NO") for row, one in reached]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    for line in table:
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    broken = [(row, one) for row, one in reached if not one.holds]
    for row, one in broken:
        print(f"\n{row.fault}: must be {row.must}, was {one.text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
