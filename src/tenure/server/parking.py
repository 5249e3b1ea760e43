"""Takes that wait for a job, by session, by queue and by deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from tenure.server.session import Parked


class Parking:
    """All parked takes; one a session at most, first come first served in each queue."""

    def __init__(self) -> None:
        self._by_session: dict[bytes, Parked] = {}
        self._by_queue: dict[str, dict[Parked, None]] = {}
        self._deadlines: list[tuple[float, int, Parked]] = []
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

    def add(self, parked: Parked) -> None:
        assert parked.connection.hello is not None  # nobody takes before hello
        self._by_session[parked.connection.hello.session] = parked
        for queue in parked.take.queues:
            self._by_queue.setdefault(queue, {})[parked] = None
        parked.connection.parked = parked
        heapq.heappush(self._deadlines, (parked.deadline, next(self._ticket), parked))

    def restore(self, parked: Parked) -> None:
        """Park a take again in its old place: what had answered it was undone."""
        self.add(parked)
        for queue in parked.take.queues:
            self._by_queue[queue] = dict.fromkeys(sorted(self._by_queue[queue], key=lambda take: take.arrived))

    def remove(self, parked: Parked) -> None:
        assert parked.connection.hello is not None  # nobody takes before hello
        del self._by_session[parked.connection.hello.session]
        for queue in parked.take.queues:
            waiting = self._by_queue.get(queue)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self._by_queue[queue]
        parked.connection.parked = None

    def next_deadline(self) -> float | None:
        """When the next parked take has to be answered."""
        while self._deadlines:
            deadline, _, parked = self._deadlines[0]
            if parked.connection.parked is parked:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    def over(self, mono: float) -> list[Parked]:
        """Takes whose wait is over; they are still parked, and are found again as long as they are."""
        found: dict[Parked, None] = {}  # a restored take has two entries
        spent = []
        while self._deadlines and self._deadlines[0][0] <= mono:
            entry = heapq.heappop(self._deadlines)
            if entry[2].connection.parked is entry[2]:
                found[entry[2]] = None
                spent.append(entry)
        for entry in spent:
            heapq.heappush(self._deadlines, entry)
        return list(found)
