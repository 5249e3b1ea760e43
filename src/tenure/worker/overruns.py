"""Which worker processes are to be ended, or replaced, because a job in them goes on after its time limit."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from tenure.message import Settlement
from tenure.worker.table import HELD, Entry, Table

logger = logging.getLogger("tenure.worker")

LOOK_PERIOD = 1.0
"""Seconds between two looks at the jobs of processes with several slots, which have the grace time to end."""

CAUSE = "another job of its process went on after its time limit"

Verdict = Literal["none", "replace", "end"]


def judge(entries: Iterable[Entry], now: float, grace: float) -> Verdict:
    """Return what is to become of a process with these entries: it is replaced when one is late by the `grace` time.

    It is ended once all its other jobs have ended, or one grace time later at the latest.
    """
    late, others = 0, 0
    latest = now
    for entry in entries:
        if entry.stage == HELD and entry.limit + grace <= now:
            late += 1
            latest = min(latest, entry.limit)
        else:
            others += 1
    if not late:
        return "none"
    return "replace" if others and now < latest + 2 * grace else "end"


def wills(table: Table, now: float) -> list[Settlement]:
    """Return what is to be said of the jobs of a process that was ended whose time limits are over."""
    late = [entry for entry in table.entries() if entry.stage == HELD and entry.limit <= now]
    for entry in late:
        logger.warning("job %s was ended with its process: its time limit is over", entry.receipt[:32].decode())
    return [table.wills.read(entry.place, entry.receipt) for entry in late]
