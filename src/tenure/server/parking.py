"""What waits on the server: takes for a job, by session and queue; waits for the end of jobs; all by deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import TypeVar

from tenure.server.session import Parked, ParkedWait

K = TypeVar("K")
V = TypeVar("V")

FEW = 1_024
"""Deadlines of lines that wait no more which are kept in any case."""


class Parking:
    """All parked takes (one a session at most, first come first served in each queue) and waits (any number)."""

    def __init__(self) -> None:
        self._by_session: dict[bytes, Parked] = {}
        self._by_queue: dict[str, dict[Parked, None]] = {}
        self._by_job: dict[bytes, dict[ParkedWait, None]] = {}
        self.jobs: Mapping[bytes, object] = self._by_job
        """The jobs whose end somebody waits for."""
        self._deadlines: list[tuple[float, int, Parked | ParkedWait]] = []
        self._tidy_at = FEW
        self._ticket = count()

    def __len__(self) -> int:
        return len(self._by_session)

    def __iter__(self) -> Iterator[Parked]:
        return iter(list(self._by_session.values()))

    def of_session(self, session: bytes) -> Parked | None:
        """The take that this session has parked, on whichever connection."""
        return self._by_session.get(session)

    def waiting(self, queue: str) -> list[Parked]:
        """The takes that wait for jobs of a queue, the longest waiting first."""
        return list(self._by_queue.get(queue, ()))

    def longest_waiting(self, queue: str) -> Parked | None:
        """The take that has waited longest for jobs of a queue, if one does."""
        return next(iter(self._by_queue.get(queue, ())), None)

    def met(self, ended: Iterable[bytes]) -> list[ParkedWait]:
        """The waits for any of these jobs."""
        return list(dict.fromkeys(parked for job in ended for parked in self._by_job.get(job, ())))

    def waits(self) -> list[ParkedWait]:
        """All parked waits."""
        return self.met(self._by_job)

    def add(self, parked: Parked | ParkedWait) -> None:
        if isinstance(parked, ParkedWait):
            for job in parked.jobs:
                self._by_job.setdefault(job, {})[parked] = None
        else:
            self._by_session[_session(parked)] = parked
            for queue in parked.take.queues:
                self._by_queue.setdefault(queue, {})[parked] = None
        parked.connection.parked = parked
        heapq.heappush(self._deadlines, (parked.deadline, next(self._ticket), parked))
        if len(self._deadlines) > self._tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        """Drop the deadlines of lines that were answered before; else one client's haste would fill the memory."""
        self._deadlines = [entry for entry in self._deadlines if entry[2].connection.parked is entry[2]]
        heapq.heapify(self._deadlines)
        self._tidy_at = FEW + 2 * len(self._deadlines)

    def restore(self, parked: Parked | ParkedWait) -> None:
        """Park a line again in its old place: what had answered it was undone."""
        self.add(parked)
        for queue in () if isinstance(parked, ParkedWait) else parked.take.queues:
            self._by_queue[queue] = dict.fromkeys(sorted(self._by_queue[queue], key=lambda take: take.arrived))

    def remove(self, parked: Parked | ParkedWait) -> None:
        if isinstance(parked, ParkedWait):
            _take_out(self._by_job, parked.jobs, parked)
        else:
            del self._by_session[_session(parked)]
            _take_out(self._by_queue, parked.take.queues, parked)
        parked.connection.parked = None

    def next_deadline(self) -> float | None:
        """When the next parked line has to be answered."""
        while self._deadlines:
            deadline, _, parked = self._deadlines[0]
            if parked.connection.parked is parked:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    def over(self, mono: float) -> list[Parked | ParkedWait]:
        """Lines whose wait is over; they are still parked, and are found again as long as they are."""
        found: dict[Parked | ParkedWait, None] = {}  # a restored line has two entries
        spent = []
        while self._deadlines and self._deadlines[0][0] <= mono:
            entry = heapq.heappop(self._deadlines)
            if entry[2].connection.parked is entry[2]:
                found[entry[2]] = None
                spent.append(entry)
        for entry in spent:
            heapq.heappush(self._deadlines, entry)
        return list(found)


def _session(parked: Parked) -> bytes:
    assert parked.connection.hello is not None  # nobody takes before hello
    return parked.connection.hello.session


def _take_out(index: dict[K, dict[V, None]], keys: Iterable[K], parked: V) -> None:
    """Take a line off an index, which keeps no empty places."""
    for key in keys:
        waiting = index.get(key)
        if waiting is not None:
            waiting.pop(parked, None)
            if not waiting:
                del index[key]
