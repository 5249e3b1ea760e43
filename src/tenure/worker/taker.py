"""Takes jobs for the slots that are free."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tenure.broker import Consumer
from tenure.clock import Clock
from tenure.message import Delivery
from tenure.worker.patience import Patience
from tenure.worker.room import Room
from tenure.worker.table import Table

J = TypeVar("J")

logger = logging.getLogger("tenure.worker")

WAIT = 0.4
"""Seconds that a take may be parked at the broker: a connection that falls silent is found out within two of these and
the limit of a read, which together are below two seconds."""

_QUICK = WAIT / 10
_FREE_TRIES = 3
_LONGEST_PAUSE = 0.1
_FIRST_REST = 0.002
_LONGEST_REST = 0.05


class Taker(Generic[J]):
    """Asks for as many jobs as there is room for, so that nothing is hoarded.

    `free` blocks until a slot is free and returns what may be taken; it is told how long to rest before it names only
    some of the queues.  `deliver` gets what came, and may return a job that the taking thread is to run by itself.
    `table` is told which take is open, and when one was answered.  Taking never ends because of the network, nor for
    any other reason but `stop()`.
    """

    def __init__(
        self,
        consumer: Consumer,
        free: Callable[[float], Room],
        deliver: Callable[[Sequence[Delivery]], J | None],
        clock: Clock,
        patience: Patience,
        table: Table,
    ) -> None:
        self._table = table
        self._consumer = consumer
        self._free = free
        self._deliver = deliver
        self._clock = clock
        self._patience = patience
        self._mine: J | None = None
        self._stopped = threading.Event()
        self._quick = 0
        self._rest = 0.0

    def run(self) -> J | None:
        """Take until there is a job for this very thread, and return that; None: it was stopped."""
        while not self._stopped.is_set():
            try:
                self._round()
                self._patience.reset()
            except BaseException as error:  # noqa: BLE001  (never idle and alive)
                if self._stopped.is_set():
                    break  # the wait was interrupted on purpose
                self._patience.wait(error, "taking jobs", self._stopped)
            if self._mine is not None:
                break
        mine, self._mine = self._mine, None
        return mine

    def stop(self) -> None:
        """End soon; what a take in progress was given is still delivered.  Wake `free` after this."""
        self._stopped.set()
        try:
            self._consumer.interrupt()
        except Exception:
            logger.exception("a waiting take could not be interrupted; it ends by itself within a second")

    def _round(self) -> None:
        limit, queues, parks = self._free(self._rest)
        if limit < 1 or self._stopped.is_set():
            return
        if queues is not None:
            self._take_some(limit, queues)
            return
        self._rest = 0.0
        asked_at = self._clock.boot()
        if self._take(limit, WAIT if parks else 0.0) or not parks:
            self._quick = 0
        else:
            self._pause(self._clock.boot() - asked_at)

    def _take_some(self, limit: int, queues: tuple[str, ...]) -> None:
        """Take from the queues that slots are free for.

        This take does not wait at the broker, for then the other queues would wait with it when a slot for them
        becomes free.  The rest before the next one is longer each time that none came.
        """
        came = self._take(limit, 0.0, queues)
        self._rest = 0.0 if came else min(_LONGEST_REST, self._rest * 2 or _FIRST_REST)

    def _take(self, limit: int, wait: float, queues: tuple[str, ...] | None = None) -> bool:
        """Take, and hand on what came; whether anything did.

        The take is open in the table from before its first byte is written until all that it brought is there, so that
        the supervisor knows of it whenever this process comes to a halt.
        """
        if not self._table.take.open(self._consumer.number, self._clock.boot()):
            self._clock.wait(self._stopped, WAIT)  # the word to leave is on its way
            return False
        deliveries = self._consumer.take(limit, wait, queues)
        self._table.answered(self._clock.boot())
        if deliveries:
            self._mine = self._deliver(deliveries)
        self._table.take.close()
        return bool(deliveries)

    def _pause(self, parked: float) -> None:
        """Rest when empty answers come faster than asked for.

        A settlement on the same connection ends the wait of a take, which is no reason to rest; so the first few are
        free.
        """
        if parked > _QUICK:
            self._quick = 0
            return
        self._quick += 1
        if self._quick > _FREE_TRIES:
            doublings = min(self._quick - _FREE_TRIES, 10)
            self._clock.wait(self._stopped, min(_LONGEST_PAUSE, 0.001 * 2**doublings))
