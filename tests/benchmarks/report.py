"""What was measured, as a table for people, as one for the documentation, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.machine import Machine

COLUMNS = ("figure", "value", "ratio", "on one core", "wanted", "")


@dataclass(frozen=True)
class Figure:
    """One figure; `digits` behind the point are shown.

    `ratio` is its part of `base`, the median of all rounds, and `of` says what that is; `one_core` is its part of P on
    one core.  `wanted` says what it should reach and `met` whether it did; both None where nothing was promised.
    `rounds` has the value and the base of each round.  `less` says that a smaller one is better.
    """

    name: str
    label: str
    value: float
    unit: str
    digits: int = 0
    ratio: float | None = None
    of: str = ""
    base: float | None = None
    one_core: float | None = None
    wanted: str | None = None
    met: bool | None = None
    note: str = ""
    less: bool = False
    rounds: tuple[tuple[float, float], ...] = ()

    def cells(self) -> tuple[str, ...]:
        """Return it as a row of the table."""
        ratio = "" if self.ratio is None else f"{self.ratio:.3g} {self.of}"
        one_core = "" if self.one_core is None else f"{self.one_core:.3f}"
        mark = {True: "reached", False: "NOT reached", None: ""}[self.met]
        last = ", ".join(word for word in (mark, self.note) if word)
        return self.label, f"{self.value:,.{self.digits}f} {self.unit}", ratio, one_core, self.wanted or "", last


def print_table(machine: Machine, figures: Sequence[Figure]) -> None:
    """Print all figures as one table, the machine above it."""
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("figure", "") else "right")
    for figure in figures:
        table.add_row(*figure.cells())
    # A figure is read whole or not at all: a narrow terminal may wrap the lines, but cuts nothing off.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    for line in machine.lines():
        console.print(line, soft_wrap=True)
    console.print()
    console.print(table)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page of the documentation; all columns but the first are to the right."""
    head = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def write_json(path: Path, machine: Machine, quick: bool, figures: Sequence[Figure]) -> None:
    """Write all figures to a file, its folder made when it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": asdict(machine), "quick": quick, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
