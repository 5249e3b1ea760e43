"""Recovery times: measured, held against what is promised, and printed at the end of a run.

A promise is asserted at three times its figure, because the machines of a test run are shared and noisy; the figures
that the documentation gives are those of a quiet run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLACK = 3.0


@dataclass(frozen=True)
class Figure:
    """One recovery as it was seen; both times are seconds."""

    what: str
    seconds: float
    promised: float


_seen: list[Figure] = []


def recovered(what: str, seconds: float, promised: float) -> None:
    """Note how long a recovery took; fail where that is more than three times what is promised."""
    _seen.append(Figure(what, seconds, promised))
    assert seconds <= SLACK * promised, f"{what}: {seconds:.2f} s, promised {promised:g} s"


def take() -> list[Figure]:
    """Return what was noted since the last call."""
    taken = _seen.copy()
    _seen.clear()
    return taken


def table(figures: Sequence[Figure]) -> list[str]:
    """Return a line for each thing that was measured: the longest of its times, and what is promised."""
    longest: dict[str, Figure] = {}
    for figure in figures:
        if figure.what not in longest or figure.seconds > longest[figure.what].seconds:
            longest[figure.what] = figure
    width = max((len(what) for what in longest), default=0)
    return [f"{one.what:<{width}}  {one.seconds:7.2f} s of {one.promised:g} s" for one in longest.values()]
