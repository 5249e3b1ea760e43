"""A job's earlier hand-outs: kept while a line about them may come again, and a number of them for people to read.

A job that is given back over and over would else grow without end.  What is left out is added to the `swept` sums.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from tenure.engine.core import Core
from tenure.engine.states import HOW_NAMES, KEPT
from tenure.engine.store import Store
from tenure.wire.commands import FLOOR

_AT_ONCE = 2
"""Old ones that go with each new one: more than one, so that a history which has become too long is made shorter."""

Sums = Counter[tuple[str, int, str]]
"""What was removed: (scope, owner, counter), as in the table `swept`."""


def keep_handout(core: Core, id: bytes, queue: int, number: int, wall: int) -> None:
    """Move the last hand-out of a job, its `number`th, to the earlier ones; of very many the oldest go."""
    store = core.store
    store.execute(KEEP_HANDOUT, (id,))
    if number <= KEPT:
        return
    rows = store.rows(OLDEST, (id, number - KEPT, wall - int(FLOOR * 1000), _AT_ONCE))
    if rows:
        sums: Sums = Counter()
        count_handouts(sums, queue, [row[1:] for row in rows])
        following = store.rows(FOLLOWING, (id, rows[-1][0]))
        count_overlaps(sums, [row[1:] for row in rows] + following)
        store.execute("DELETE FROM handouts WHERE job = ? AND number <= ?", (id, rows[-1][0]))
        add_sums(store, sums)


def count_handouts(sums: Sums, queue: int, handouts: list[tuple[Any, ...]]) -> None:
    """Add hand-outs, each (worker, how, late, ...), to the sums of their queue and workers."""
    for by, ended, refused, *_ in handouts:
        for scope, owner in (("queue", queue), ("worker", by)):
            sums[scope, owner, "handed_out"] += 1
            sums[scope, owner, "/" + HOW_NAMES[ended]] += 1
            sums[scope, owner, "refused"] += refused


def count_overlaps(sums: Sums, handouts: list[tuple[Any, ...]]) -> None:
    """Add how many of these hand-outs of one job, each (..., begin, end) in commit numbers, began too early."""
    sums["store", 0, "overlaps"] += sum(after[3] < before[4] for before, after in pairwise(handouts))


def add_sums(store: Store, sums: Sums) -> None:
    """Write down what was removed, in the transaction that removes it."""
    store.many(ADD_SUM, [(*what, n) for what, n in sums.items() if n])


KEEP_HANDOUT = """
    INSERT INTO handouts (job, number, session, worker, take, hold_vt, begin_at, begin_commit, end_at, end_commit, how,
                          late, cause, error)
    SELECT id, number, session, worker, take, hold_vt, begin_at, begin_commit, end_at, end_commit, how, late, cause,
           error
    FROM jobs WHERE id = ?
"""

OLDEST = """
    SELECT number, worker, how, late, begin_commit, end_commit FROM handouts
    WHERE job = ? AND number <= ? AND end_at <= ? ORDER BY number LIMIT ?
"""

FOLLOWING = """
    SELECT worker, how, late, begin_commit, end_commit FROM handouts
    WHERE job = ? AND number > ? ORDER BY number LIMIT 1
"""

ADD_SUM = """
    INSERT INTO swept VALUES (?, ?, ?, ?)
    ON CONFLICT (scope, owner, counter) DO UPDATE SET n = swept.n + excluded.n
"""
