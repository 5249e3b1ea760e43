"""The order in which ready jobs are handed out: by priority, then first in, first out.

Most jobs are taken soon after they were added.  Those wait in memory, complete, and no index lists them: an add then
writes one page less, and a take reads nothing.  Where more wait than there is room for, and where a job becomes ready
in another way than by its add, the index `ready` lists it.  The rows say which is which (`listed`), so a start finds
both again; who is next is the first of the two.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, KeysView
from heapq import merge
from itertools import islice
from typing import Any

from tenure.engine.store import Store

MOST = 32_768
"""Jobs that wait in memory at most, in all queues together."""

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of their bodies at most."""

FEW = 1_024
"""Jobs that are not here any more of which something is kept in any case."""

Row = tuple[Any, ...]
"""A job as `WAITING` reads it."""


class Lines:
    """Who is next in each queue; `load` fills it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.most = MOST
        self._begin()

    def _begin(self) -> None:
        self._waiting: dict[int, dict[int, deque[Row]]] = {}
        self._sizes: dict[bytes, int] = {}
        self._bytes = self._gone = 0
        self.listed: Counter[int] = Counter()
        self._none_before: dict[int, tuple[int, int]] = {}

    def load(self) -> None:
        """Find out from the rows who waits."""
        self._begin()
        self.listed.update(dict(self._store.rows(COUNT_LISTED)))
        for row in self._store.rows(UNLISTED):
            self._keep(row)

    @property
    def has_room(self) -> bool:
        """Whether one more job can wait in memory; else its row has to be listed."""
        return len(self._sizes) < self.most and self._bytes < MOST_BYTES

    def has_room_for(self, jobs: int, size: int) -> bool:
        """Whether so many more can wait in memory, with so many bytes of bodies."""
        return len(self._sizes) + jobs <= self.most and self._bytes + size < MOST_BYTES

    def join(self, row: Row, listed: bool) -> None:
        """A job was added just now, and is ready."""
        if listed:
            self.enlist(row[1], row[14], row[16])
        else:
            self._keep(row)

    def _keep(self, row: Row) -> None:
        id, queue, size, priority = row[0], row[1], len(row[13]), row[14]
        by_priority = self._waiting.get(queue)
        if by_priority is None:
            by_priority = self._waiting[queue] = {}
        waiting = by_priority.get(priority)
        if waiting is None:
            waiting = by_priority[priority] = deque()
        waiting.append(row)
        self._sizes[id] = size
        self._bytes += size

    def enlist(self, queue: int, priority: int, place: int) -> None:
        """A job has become ready whose row is listed."""
        self.listed[queue] += 1
        before = self._none_before.get(queue)
        if before is not None and (-priority, place) < before:
            self._none_before[queue] = (-priority, place)

    def leave(self, id: bytes, queue: int) -> None:
        """A job is not ready any more."""
        size = self._sizes.pop(id, None)
        if size is None:
            self.listed[queue] -= 1
            return
        self._bytes -= size
        self._gone += 1
        if self._gone > FEW + len(self._sizes):
            self._tidy()

    def _tidy(self) -> None:
        """Let go of what has left from the middle of a line; what leaves at its head goes by itself."""
        for queue, by_priority in tuple(self._waiting.items()):
            left = {p: deque(row for row in rows if row[0] in self._sizes) for p, rows in by_priority.items()}
            self._waiting[queue] = {priority: rows for priority, rows in left.items() if rows}
        self._gone = 0

    def first(self, queue: int, n: int) -> list[Row]:
        """Return the next `n` jobs of a queue, or as many as there are; they stay where they are."""
        here = list(islice(self._here(queue), n))
        if not self.listed[queue]:
            return here
        before = self._none_before.get(queue)
        if before is not None and len(here) == n and _order(here[-1]) < before:
            return here
        listed = self._store.rows(LISTED, (queue, n))
        if listed:
            self._none_before[queue] = _order(listed[0])
        return list(islice(merge(here, listed, key=_order), n))

    def _here(self, queue: int) -> Iterator[Row]:
        """Yield what waits in memory, in order."""
        by_priority = self._waiting.get(queue, {})
        for priority in sorted(by_priority, reverse=True):
            rows = by_priority[priority]
            while rows and rows[0][0] not in self._sizes:
                rows.popleft()
                self._gone -= 1
            yield from (row for row in rows if row[0] in self._sizes)

    def unlisted(self) -> KeysView[bytes]:
        """The jobs that wait in memory."""
        return self._sizes.keys()


def _order(row: Row) -> tuple[int, int]:
    return -row[14], row[16]


WAITING = """
    id, queue, expires, number, vt, task, key, fingerprint, attempts, losses, max_attempts, max_losses, big, body,
    priority, run_at, place
"""

LISTED = f"""
    SELECT {WAITING} FROM jobs INDEXED BY ready
    WHERE queue = ? AND state = 2 AND listed = 1 ORDER BY priority DESC, place LIMIT ?
"""

COUNT_LISTED = "SELECT queue, count(*) FROM jobs INDEXED BY ready WHERE state = 2 AND listed = 1 GROUP BY queue"
UNLISTED = f"SELECT {WAITING} FROM jobs WHERE state = 2 AND listed = 0 ORDER BY place"
