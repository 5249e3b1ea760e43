"""Tells of turns that were undone, without filling a disk that is full already."""

from __future__ import annotations

import logging

from tenure.engine.store import DbError

log = logging.getLogger("tenure.server")

PAUSE = 1.0
"""Seconds between two lines of the log about one kind of error."""


class UndoneTurns:
    """Logs the first undone turn at once, and those that follow together, about once a second."""

    def __init__(self) -> None:
        self._open: dict[type[Exception], tuple[int, int, Exception]] = {}  # turns, lines, the last error
        self._next: dict[type[Exception], float] = {}

    def note(self, lines: int, error: Exception, mono: float) -> None:
        """Take note of one; it is logged now or with the next ones."""
        kind = type(error)
        turns, before, _ = self._open.get(kind, (0, 0, error))
        self._open[kind] = turns + 1, before + lines, error
        self.tell(mono)

    def tell(self, mono: float) -> None:
        """Log what has come together, where the last line about it is old enough."""
        for kind in [kind for kind in self._open if self._next.get(kind, mono) <= mono]:
            turns, lines, error = self._open.pop(kind)
            self._next[kind] = mono + PAUSE
            what = f"a turn of {lines} lines was" if turns == 1 else f"{turns} turns of {lines} lines together were"
            log.error("%s undone: %s", what, error, exc_info=None if isinstance(error, DbError) else error)
