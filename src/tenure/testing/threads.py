"""The real worker in threads of the test's process, which lives on while the test moves the clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tenure.brokers.inprocess import MemoryServer
from tenure.worker import Worker


class ThreadedWorker(Worker):
    """A worker that keeps its leases over a move of its clock."""

    @contextmanager
    def living(self, server: MemoryServer, seconds: float) -> Iterator[None]:
        """Have the clock moved by so much inside of this block as if leases had been extended all that time."""
        with server.jump(self._has_read_all), nullcontext() if self._keeper is None else self._keeper.jump(seconds):
            yield  # a worker without a keeper has taken nothing yet

    def _has_read_all(self) -> bool:
        """Whether nothing that the broker has handed out is still on its way into the table."""
        return self._table is None or self._table.take.number() == 0
