"""The parts of the documentation that the benchmarks write: what stands between two marks of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.machine import Machine
from tests.benchmarks.processes import ROOT

README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "explanation" / "performance.md"
PLOTS = PERFORMANCE.with_suffix("")


def put(page: Path, part: str, text: str) -> None:
    """Write `text` between the marks of this part; raises ValueError when the page has none."""
    page.write_text(replaced(page.read_text(encoding="utf-8"), part, text), encoding="utf-8")


def replaced(page: str, part: str, text: str) -> str:
    """Return the page with `text` between the marks of this part; raises ValueError when it has none."""
    begin, end = f"<!-- {part}: measured -->\n", f"<!-- {part}: end -->"
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no part {part!r}: write {begin.strip()} and {end} around its place")
    return f"{page[: found.start()]}{begin}{text.strip()}\n{end}{page[found.end() :]}"


def measured_by(command: str, machine: Machine, *more: Sequence[str]) -> str:
    """Return what stands above figures: the command, the day, the machine and the versions."""
    lines = [f"`{command}`, measured {machine.lines()[0]}.", f"{machine.lines()[1]}.", *(str(line) for line in more)]
    return "\n".join(lines)
