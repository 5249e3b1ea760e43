"""Writes the picture and the table of docs/explanation/lifecycle.md from the engine's own: `make reference`.

The words around them are written by hand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from docs.describe import block, table
from tenure.engine.states import ATTEMPTS, HOW_NAMES, LOSSES, MOVES, STATE_NAMES, Move

PAGE = Path(__file__).parent / "explanation" / "lifecycle.md"
_PART = re.compile(r"(?<=<!-- made: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def picture() -> str:
    """Return all moves as a Mermaid diagram: one arrow from a state to another, with the reasons for it."""
    arrows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for move in MOVES:
        label = move.why if move.how is None else HOW_NAMES[move.how]
        arrows[_name(move.before), _name(move.after)].append(label)
    lines = [f"    {before} --> {after}: {', '.join(labels)}" for (before, after), labels in arrows.items()]
    return block("\n".join(["stateDiagram-v2", *lines]), "mermaid")


def moves() -> str:
    """Return all moves as a table."""
    rows = [
        (_shown(move.before), _shown(move.after), move.why, HOW_NAMES[move.how] if move.how else "", _counts(move))
        for move in MOVES
    ]
    return table(("from", "to", "when", "the hand-out ends as", "counts as"), rows)


def _name(state: int | None) -> str:
    return "[*]" if state is None else STATE_NAMES[state]


def _shown(state: int | None) -> str:
    return "" if state is None else f"`{STATE_NAMES[state]}`"


def _counts(move: Move) -> str:
    if move.how in ATTEMPTS:
        return "an attempt"
    return "a loss" if move.how in LOSSES else ""


def page(written: str) -> str:
    """Return the page with both parts made anew."""
    made = {"picture": picture(), "table": moves()}
    return _PART.sub(lambda part: f"{part[1]} -->\n\n{made[part[1]]}\n\n", written)


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
