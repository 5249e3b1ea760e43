"""The record of a queue held against its jobs, a part at a time, so that others are served in between.

What was counted is worth something only where nothing moved meanwhile, so that is looked at, and it is counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.brokers.redis.line import Line
from tenure.brokers.redis.scripts import RECORD, RECOUNT
from tenure.errors import ServerError
from tenure.names import shown

PART = 5_000
"""Jobs in one call, during which the server answers nobody else."""
TRIES = 20
_SETS = 5
_NO_COUNTS = frozenset(
    (b"seen", b"run", b"keep", b"swept", b"soon", b"heard", b"old", b"aging", b"idkeys", b"out", b"paused", b"closed")
)


@dataclass(slots=True)
class Recount:
    """What a queue's jobs come to: counts by name, those of a worker with a colon and its name behind; and what is
    wrong with single jobs."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def recount(line: Line, queue: str, rest: Callable[[int], object]) -> tuple[list[Any], Recount]:
    """Return a queue's record and what its jobs come to at that same moment; raises ConnectionError.

    `rest` is called before each further try.  Raises ServerError where the queue never stands still for long enough.
    """
    for attempt in range(TRIES):
        if attempt:
            rest(attempt)
        before: list[Any] = line.ask(RECORD, queue, [])[1]
        counted = _count(line, queue)
        if _moves(line.ask(RECORD, queue, [])[1]) == _moves(before):
            return before, counted
    raise ServerError(
        "busy", f"queue {shown(queue)} changed during each of {TRIES} counts of its jobs; ask again when less happens"
    )


def _count(line: Line, queue: str) -> Recount:
    counted = Recount()
    for number in range(1, _SETS + 1):
        begin, size = 0, PART
        while size == PART:
            size, flat, wrong = line.ask(RECOUNT, queue, [number, begin, PART])[1]
            begin += size
            for name, n in zip(flat[::2], flat[1::2], strict=True):
                counted.counts[name.decode()] += n
            counted.wrong += [text.decode() for text in wrong]
    return counted


def _moves(record: Sequence[Any]) -> object:
    """Return what differs after anything has happened to a job: each change of one is counted somewhere."""
    fields, workers, sizes, swept = record
    names = zip(fields[::2], fields[1::2], strict=True)
    pairs = zip(workers[::2], workers[1::2], strict=True)
    return {name: n for name, n in names if name not in _NO_COUNTS}, dict(pairs), sizes, swept
