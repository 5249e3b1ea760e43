"""Tables for a terminal; for a file or a pipe they are as wide as they need to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDE = 1_000


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows below their columns' names; numbers to the right, long texts folded in their cells."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDE)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    for index, column in enumerate(columns):
        numbers = bool(cells) and all(row[index].isdecimal() for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))  # as it is: a name in square brackets is no markup
    console.print(table)
