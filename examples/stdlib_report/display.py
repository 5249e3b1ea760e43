"""What the person at the terminal sees: progress, the report, the checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.stdlib_report.checks import Result
from examples.stdlib_report.findings import Finding
from tenure.cli.tables import print_table

LARGEST = 10


class Display:
    """Progress as two bars on a terminal, and as a line now and then for a file or a pipe."""

    def __init__(self, total: int) -> None:
        console = Console(highlight=False, soft_wrap=True)
        self._total = total
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._added = self._bars.add_task("added", total=total)
        self._done = self._bars.add_task("done", total=total)
        self._next_line = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def show(self, added: int, done: int) -> None:
        """Show how far it is."""
        self._bars.update(self._added, completed=added)
        self._bars.update(self._done, completed=done)
        if self._bars.disable and done >= self._next_line:
            self._next_line = (done * 4 // self._total + 1) * self._total // 4
            self.say(f"added {added} of {self._total}, done {done}")

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        self._bars.console.print(text, markup=False)


def print_report(findings: Sequence[Finding], folder: Path) -> None:
    """Print the ten largest modules, the totals and the longest function."""
    print_table(
        ("module", "lines", "functions", "classes", "longest function", "its lines"),
        [
            (
                Path(each.path).relative_to(folder),
                each.lines,
                each.functions,
                each.classes,
                each.longest,
                each.longest_lines,
            )
            for each in findings[:LARGEST]
        ],
        title=f"The {LARGEST} largest of {len(findings)} modules",
    )
    lines, functions, classes = (
        sum(getattr(each, what) for each in findings) for what in ("lines", "functions", "classes")
    )
    print(f"In all: {lines} lines, {functions} functions, {classes} classes.")
    longest = max(findings, key=lambda each: each.longest_lines)
    print(
        f"The longest function: {longest.longest} in {Path(longest.path).relative_to(folder)}, "
        f"{longest.longest_lines} lines.\n"
    )


def print_checks(results: Sequence[Result]) -> None:
    """Print each check with its numbers, and how many hold."""
    for result in results:
        print(f"{'ok    ' if result.holds else 'FAILED'}  {result.claim}: {result.numbers}")
    failed = [result.claim for result in results if not result.holds]
    if failed:
        print(f"\nThe demo FAILED: {'; '.join(failed)}")
    else:
        print(f"\nAll {len(results)} checks hold.")
