"""Tables for a terminal; for a file or a pipe they are as wide as they need to be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 1_000


def open_console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


def shorten(text: str, length: int) -> str:
    """Return a text with its end left out where it is longer than this."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    whole: Collection[str] = (),
    console: Console | None = None,
) -> None:
    """Print rows below their columns' names; numbers to the right, long texts folded in their cells.

    The columns in `whole` are never folded, so that what is in them can be copied.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = console or open_console()
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    for index, column in enumerate(columns):
        numbers = bool(cells) and all(row[index].isdecimal() for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold", no_wrap=column in whole)
    for row in cells:
        table.add_row(*map(Text, row))  # as it is: a name in square brackets is no markup
    console.print(table)
