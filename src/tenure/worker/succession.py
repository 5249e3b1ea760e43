"""How a worn worker process is followed by a fresh one without a gap, and without more jobs at a time than asked for.

The next one is started while the worn one still works.  It takes nothing until it is ready and the worn one has said
that it takes nothing new; from then on it leaves as many slots unused as the worn one still needs for what runs there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.worker.handle import Handle
from tenure.worker.room import ASYNC, SYNC

LOOK_PERIOD = 0.05
"""Seconds between two looks at how many slots a process that makes room still needs."""

_ALL = 1 << 32


def in_office(children: Sequence[Handle]) -> int:
    """Return how many of the processes count: those that are not worn."""
    return sum(1 for child in children if not child.worn)


def replace_one(children: Sequence[Handle], new: Handle) -> None:
    """Let a process that has just been started take the place of a worn one that has no successor, if there is one."""
    replaced = {child.replaces for child in children}
    new.replaces = next(
        (child for child in children if child.worn and child not in replaced and child is not new), None
    )
    if new.replaces is not None:
        new.table.lend(_ALL)


def is_buried(children: Sequence[Handle], gone: Handle) -> None:
    """Let the successor of a process that is gone wait for those only that this one waited for."""
    for child in children:
        if child.replaces is gone:
            child.replaces = gone.replaces


def make_room(children: Sequence[Handle]) -> bool:
    """Tell worn processes whose successors are ready to leave, and these what they may use; False: none is replaced."""
    pairs = [(child, child.replaces) for child in children if child.ready and child.replaces is not None]
    for successor, worn in pairs:
        worn.tell_to_make_room()
        successor.table.lend(_needed(worn))
    for child in children:
        if child.ready and child.replaces is None:
            child.table.lend(0)
    return bool(pairs)


def _needed(worn: Handle | None) -> int:
    """Return how many slots of either kind a worn process, and those that it has replaced itself, still need."""
    if worn is None:
        return 0
    if not worn.resting:
        return _ALL
    return max(worn.table.held(SYNC), worn.table.held(ASYNC)) + _needed(worn.replaces)
