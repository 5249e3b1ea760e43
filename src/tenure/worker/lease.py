"""The hold on a job that runs in this process."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tenure import clock
from tenure.worker.table import LOST, Table
from tenure.worker.wills import tag_of


class Lease:
    """The hold on one delivery, as the running function may ask for it.

    `limit` is when its time limit is over (boot clock); `replace` gives its slot to others, and tells whether it has.
    """

    __slots__ = ("_boot", "_index", "_limit", "_receipt", "_replace", "_table", "_tag")

    def __init__(
        self,
        table: Table,
        index: int,
        receipt: bytes,
        boot: Callable[[], float] = clock.boot,
        limit: float = inf,
        replace: Callable[[bytes], bool] = lambda receipt: False,
    ) -> None:
        self._boot = boot
        self._limit = limit
        self._replace = replace
        self._table = table
        self._index = index
        self._receipt = receipt
        self._tag = tag_of(receipt)

    def deadline(self) -> float | None:
        """Return the own deadline, extensions included, in seconds of the boot clock; None when the lease is lost."""
        if not self._table.has(self._index, self._receipt):
            return None  # asked after the job's end, by a thread that it left behind
        deadline = self._table.deadline(self._index, self._tag)
        return None if deadline == LOST else deadline

    def limit(self) -> float:
        """Return when the job's time limit is over."""
        return self._limit

    def terminated(self) -> bool:
        """Whether the job was cancelled, and is to be ended now."""
        return self._table.wills.terminated(self._index, self._tag)

    def terminated_at(self) -> float:
        """Return when somebody asked for that (boot clock); infinite where nobody has."""
        return self._table.wills.terminated_at(self._index, self._tag)

    def overrun(self) -> None:
        """Give the slot to other jobs: the function goes on although it was ended."""
        if self._replace(self._receipt):
            self._table.overrun(self._index)

    def extend(self) -> None:
        """Ask the keeper to extend this lease when it looks next, a fifth of a second from now at most."""
        self._table.ask(self._index, self._boot())

    def progress(self, packed: bytes) -> None:
        """Leave word of how far the job is; the keeper sends it."""
        self._table.say(self._index, self._receipt, packed)

    def cancelled(self) -> bool:
        """Whether somebody has asked for this job to be cancelled."""
        return self._table.cancelled(self._index, self._tag)

    def stopping(self) -> bool:
        """Whether the worker is leaving."""
        return self._table.surroundings.stopping

    def idle(self, task: str | None, queue: str | None = None) -> bool:
        """Whether this worker has room to take a job of `task` from `queue`."""
        return self._table.surroundings.idle(task, queue)
