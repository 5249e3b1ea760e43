"""The record's counts, kept in memory while the server runs and derived from the rows at each start.

No counter is a row that each command writes: rows and `swept` sums say everything, so the counts are exact after
any crash.  `record.py` recounts them by other means.
"""

from __future__ import annotations

from typing import Any

from tenure.engine import record
from tenure.engine.states import HOW_NAMES
from tenure.engine.store import Store

JOB_COUNTERS = ("added", "done", "dead", "cancelled", "purged", "scheduled", "ready", "running")
"""Counts of jobs; the first is the sum of all others, at every moment."""

OTHER_COUNTERS = ("duplicates", "refused", "expired", "handed_out")
HOW_COUNTERS = tuple(HOW_NAMES.values())

Tally = dict[str, int]
"""Counts by name.  A hand-out's end is named with a leading slash (`/done`), apart from the job's state (`done`)."""


def new_queue_tally() -> Tally:
    """The counts of a queue in which nothing has happened."""
    return dict.fromkeys((*JOB_COUNTERS, *OTHER_COUNTERS, *(f"/{how}" for how in HOW_COUNTERS)), 0)


def new_worker_tally() -> Tally:
    """The counts of a worker that has taken nothing."""
    return dict.fromkeys(("handed_out", "running", "refused", *(f"/{how}" for how in HOW_COUNTERS)), 0)


class Ledger:
    """The counts of every queue and every worker, by their numbers in the store; `load` fills it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.queues: dict[int, Tally] = {}
        self.workers: dict[int, Tally] = {}
        self.overlaps = 0

    def load(self) -> None:
        """Count everything anew from the rows."""
        counted = record.recount(self._store.db)
        self.queues = {id: new_queue_tally() | counted.queues.get(id, {}) for id in self._store.queue_names}
        self.workers = {id: new_worker_tally() | counted.workers.get(id, {}) for id in self._store.worker_names}
        self.overlaps = counted.overlaps

    def queue(self, id: int) -> Tally:
        """The counts of a queue."""
        tally = self.queues.get(id)
        if tally is None:
            tally = self.queues[id] = new_queue_tally()
        return tally

    def worker(self, id: int) -> Tally:
        """The counts of a worker."""
        tally = self.workers.get(id)
        if tally is None:
            tally = self.workers[id] = new_worker_tally()
        return tally

    def as_record(self) -> dict[str, Any]:
        """The record as users read it; the time it takes does not depend on the number of jobs."""
        queues = {self._store.queue_names[id]: nested(tally) for id, tally in self.queues.items()}
        workers = {self._store.worker_names[id]: nested(tally) for id, tally in self.workers.items()}
        totals = new_queue_tally()
        for tally in self.queues.values():
            for name, n in tally.items():
                totals[name] += n
        return {
            "queues": dict(sorted(queues.items())),
            "workers": dict(sorted(workers.items())),
            "totals": nested(totals),
            "overlaps": self.overlaps,
            "balanced": self.overlaps == 0 and all(record.balanced(tally) for tally in self.queues.values()),
        }


def nested(tally: Tally) -> dict[str, Any]:
    """Counts with the hand-outs' ends in a group of their own."""
    flat: dict[str, Any] = {name: n for name, n in tally.items() if name[0] != "/"}
    flat["handouts"] = {name[1:]: n for name, n in tally.items() if name[0] == "/"}
    return flat
