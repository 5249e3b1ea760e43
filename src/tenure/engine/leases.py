"""Who holds what, and until when: kept in memory beside the rows, made anew from them at each start.

A lease's end runs on the server's monotonic clock (seconds).  The rows stay the truth for everything else.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """A hand-out that still runs; `vt` is milliseconds, `end` monotonic seconds."""

    id: bytes
    number: int
    session: bytes
    worker: int
    take: int
    vt: int
    end: float
    queue: int
    task: str
    key: str | None
    fingerprint: bytes
    attempts: int
    losses: int
    max_attempts: int
    max_losses: int
    big: int
    """Which row has the body; 0: the job's own."""
    priority: int
    place: int
    cancel: int = 0
    progress: bytes | None = None

    def hold(self, since: float) -> int:
        """Milliseconds from `since` to the end, rounded down: the holder may only believe in less."""
        return max(0, int((self.end - since) * 1000))


SPENT_ENDS = 1_024
"""Entries of ended leases that the order of ends may hold on to."""


class LeaseBook:
    """All leases, by job and by session, and the next one to run out."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Lease] = {}
        self._by_session: dict[bytes, dict[bytes, Lease]] = {}
        # Each lease stands under one end; an extended one is found too early there and put under its new end.  Those
        # of one take end together, so there are far fewer ends in order than leases.
        self._by_end: dict[float, deque[Lease]] = {}
        self._ends: list[float] = []
        self._entered = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._by_id.values())

    def get(self, id: bytes, number: int) -> Lease | None:
        """The lease of exactly this hand-out, if it still runs."""
        lease = self._by_id.get(id)
        return lease if lease is not None and lease.number == number else None

    def of_job(self, id: bytes) -> Lease | None:
        """The lease of this job's running hand-out, if there is one."""
        return self._by_id.get(id)

    def of_session(self, session: bytes) -> list[Lease]:
        """All that a session holds."""
        held = self._by_session.get(session)
        return list(held.values()) if held else []

    def add(self, lease: Lease) -> None:
        self._by_id[lease.id] = lease
        held = self._by_session.get(lease.session)
        if held is None:
            held = self._by_session[lease.session] = {}
        held[lease.id] = lease
        self._enter(lease)
        if self._entered > 2 * len(self._by_id) + SPENT_ENDS:
            self._order_ends()  # else a long visibility timeout would keep an entry for every job done within it

    def _enter(self, lease: Lease) -> None:
        leases = self._by_end.get(lease.end)
        if leases is None:
            leases = self._by_end[lease.end] = deque()
            heapq.heappush(self._ends, lease.end)
        leases.append(lease)
        self._entered += 1

    def remove(self, lease: Lease) -> None:
        del self._by_id[lease.id]
        held = self._by_session[lease.session]
        del held[lease.id]
        if not held:
            del self._by_session[lease.session]

    def renew_all(self, now: float) -> None:
        """Give every lease its full visibility timeout again."""
        for lease in self:
            lease.end = max(lease.end, now + lease.vt / 1000)
        self._order_ends()

    def _order_ends(self) -> None:
        """One entry for each lease that runs, and none for those that have ended."""
        self._by_end.clear()
        self._ends.clear()
        self._entered = 0
        for lease in self:
            self._enter(lease)

    def next_end(self) -> float | None:
        """When the next lease may run out (never too late, perhaps too early)."""
        while self._ends:
            end = self._ends[0]
            leases = self._by_end[end]
            while leases:
                if self._by_id.get(leases[0].id) is leases[0]:
                    return end
                leases.popleft()
                self._entered -= 1
            del self._by_end[heapq.heappop(self._ends)]
        return None

    def run_out(self, before: float, limit: int) -> list[Lease]:
        """Up to `limit` leases that ended at `before` or earlier; they are still in the book."""
        found: list[Lease] = []
        while len(found) < limit:
            end = self.next_end()
            if end is None or end > before:
                break
            lease = self._by_end[end].popleft()
            self._entered -= 1
            if lease.end <= before:
                found.append(lease)
            else:
                self._enter(lease)
        return found
