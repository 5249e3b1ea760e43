"""Which worker processes are to be ended, or replaced, because a job in them goes on after it was to end.

That is when its time limit was over, or when it was terminated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from tenure.message import Settlement
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.options import WorkerOptions
from tenure.worker.table import HELD, Entry, Table

logger = logging.getLogger("tenure.worker")

LOOK_PERIOD = 1.0
"""Seconds between two looks at the jobs of processes with several slots, which have the grace time to end."""

ISOLATED_LOOK_PERIOD = 0.1
"""The same for processes with one job at a time, which have no more than a moment."""

CAUSE = "another job of its process went on after it was to end"

Verdict = Literal["none", "replace", "end"]


def patience(options: WorkerOptions) -> float:
    """Return for how many seconds a job may go on after its time limit before its process is no longer spared."""
    return OVERRUN_AFTER if options.isolate else max(options.grace, OVERRUN_AFTER)


def look_period(options: WorkerOptions) -> float:
    """Return the seconds between two looks."""
    return ISOLATED_LOOK_PERIOD if options.isolate else LOOK_PERIOD


def judge(entries: Iterable[Entry], now: float, patience: float) -> Verdict:
    """Return what is to become of a process with these entries: it is replaced when one is late by its `patience`.

    It is ended once all its other jobs have ended, or at the latest when that is over a second time.
    """
    late, others = 0, 0
    first = now
    for entry in entries:
        if entry.stage == HELD and entry.limit + patience <= now:
            late += 1
            first = min(first, entry.limit)
        else:
            others += 1
    if not late:
        return "none"
    return "replace" if others and now < first + 2 * patience else "end"


def wills(table: Table, now: float) -> list[Settlement]:
    """Return what is to be said of the jobs of a process that was ended whose time limits are over."""
    late = [entry for entry in table.entries() if entry.stage == HELD and entry.limit <= now]
    for entry in late:
        logger.warning(
            "job %s went on after it was to end, and was ended with its process", entry.receipt[:32].decode()
        )
    return [table.wills.read(entry.place, entry.receipt) for entry in late]
