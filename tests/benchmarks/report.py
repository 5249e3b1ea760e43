"""What was measured, on which machine, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One figure; `digits` behind the point are shown.

    `ratio` is its part of `p`, raw round trips a second, each the median of all rounds.  `wanted` says what it should
    reach and `met` whether it did; both None where nothing was promised.  `rounds` has the rate and P of each round.
    """

    name: str
    label: str
    value: float
    unit: str
    digits: int = 0
    ratio: float | None = None
    p: float | None = None
    wanted: str | None = None
    met: bool | None = None
    rounds: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Machine:
    """Where and when it was measured; `load` is the average number of busy processes over the last minute."""

    date: str
    system: str
    processor: str
    cpus: int
    load: float | None
    python: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Return it for people."""
        load = "unknown" if self.load is None else f"{self.load:.2f}"
        return [
            f"{self.date}, {self.system}, {self.processor}, {self.cpus} CPUs, load average before {load}",
            ", ".join([self.python, *(f"{name} {number}" for name, number in self.versions.items())]),
        ]


def this_machine() -> Machine:
    """Describe the machine as it is now."""
    return Machine(
        date=datetime.now(UTC).isoformat(" ", "seconds"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cpus=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 0,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={**_versions("tenure", "uvloop", "msgpack", "apsw"), "SQLite": apsw.sqlite_lib_version()},
    )


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def print_table(machine: Machine, figures: Sequence[Figure]) -> None:
    """Print all figures as one table, the machine above it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    for column in ("value", "ratio to P", "wanted"):
        table.add_column(column, justify="right")
    table.add_column("")
    for figure in figures:
        table.add_row(*_cells(figure))
    # A figure is read whole or not at all: a narrow terminal may wrap the lines, but cuts nothing off.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    for line in machine.lines():
        console.print(line, soft_wrap=True)
    console.print()
    console.print(table)


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3f}"
    mark = {True: "reached", False: "NOT reached", None: ""}[figure.met]
    return figure.label, f"{figure.value:,.{figure.digits}f} {figure.unit}", ratio, figure.wanted or "", mark


def write_json(path: Path, machine: Machine, quick: bool, figures: Sequence[Figure]) -> None:
    """Write all figures to a file, its folder made when it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": asdict(machine), "quick": quick, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
