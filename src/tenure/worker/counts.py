"""What a worker's settlements came to, by the broker's answers."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from tenure.broker import EndedAs, Settled


@dataclass(frozen=True, slots=True)
class Counts:
    """The worker's own account, one number an outcome; the server's record must agree with it.

    `refused` are settlements that came too late, `unknown` those whose hand-out the broker knows no more, `dropped`
    those that nobody counts, `added` the jobs that settlements brought along.  `started` are the functions begun.
    """

    done: int = 0
    retried: int = 0
    released: int = 0
    dead: int = 0
    cancelled: int = 0
    refused: int = 0
    unknown: int = 0
    dropped: int = 0
    added: int = 0
    started: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def line(self) -> str:
        """Return the one line that a worker prints at its end."""
        return "counts: " + " ".join(f"{name}={getattr(self, name)}" for name in NAMES)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the numbers as JSON to `path`, whole or not at all."""
        target = Path(path)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(self), file)
        Path(name).replace(target)


def check_place(path: str | os.PathLike[str]) -> None:
    """See that `Counts.write` can make files beside `path`, long before it is to; raises OSError."""
    target = Path(path)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name):
        pass


NAMES = ("done", "retried", "released", "dead", "cancelled", "refused", "unknown", "dropped", "added")
"""The counters in the order in which the table in shared memory holds them."""

ADDED = NAMES.index("added")

_BY_STATE = {
    "done": "done",
    "scheduled": "retried",
    "ready": "released",
    "released": "released",
    "dead": "dead",
    "cancelled": "cancelled",
}
_BY_ANSWER = {"refused": "refused", "gone": "unknown"}


def counter_of(settled: Settled) -> int:
    """Return which counter an answer to a settlement moves, as a place in `NAMES`."""
    if settled.answer == "ok":
        return NAMES.index(_BY_STATE[settled.detail])
    return NAMES.index(_BY_ANSWER.get(settled.answer, "dropped"))


def counts_of_settled(answers: Sequence[Settled]) -> Counts:
    """Count the answers to settlements that the supervisor has sent."""
    sums = dict.fromkeys(NAMES, 0)
    for answer in answers:
        sums[NAMES[counter_of(answer)]] += 1
    return Counts(**sums)


_WORKERS_WORD = ("done", "retried", "released", "dead", "cancelled")


def counts_of_bye(ended: Sequence[EndedAs]) -> Counts:
    """Count the unanswered settlements of a process that is gone, by what the answer to its `bye` tells.

    One that the server had taken counts as such, one that it had refused as refused; the rest never arrived and never
    will, since the session is closed.
    """
    sums = dict.fromkeys(NAMES, 0)
    for how, late in ended:
        if late:
            sums["refused"] += 1
        elif how in _WORKERS_WORD:
            sums[how] += 1
        elif how == "unknown":
            sums["unknown"] += 1
    return Counts(**sums)
