"""The services of one worker process, put together: taker, slots and settler over one consumer and one table."""

from __future__ import annotations

import logging
import random
import threading

from tenure.app import App
from tenure.broker import Broker
from tenure.clock import Clock
from tenure.worker.dead_hooks import DeadHooks
from tenure.worker.executor import Executor
from tenure.worker.patience import Patience
from tenure.worker.settler import Settler
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tenure.worker.taker import Taker

logger = logging.getLogger("tenure.worker")

LAST_HOOKS = 5.0
"""Seconds that a leaving process gives to the `on_dead` hooks that still wait or run."""


class Services:
    """Takes, runs and settles jobs until drained; whoever starts them keeps the leases."""

    def __init__(
        self,
        app: App,
        broker: Broker,
        table: Table,
        clock: Clock,
        *,
        queues: tuple[str, ...],
        session: str,
        name: str,
        threads: int,
        grace: float,
        visibility_timeout: float,
    ) -> None:
        self._consumer = broker.consumer(queues, session=session, name=name, visibility_timeout=visibility_timeout)
        self._dead_hooks = DeadHooks(app)
        self._settler = Settler(self._consumer, table, Patience(clock, random.random), self._dead_hooks.put)
        executor = Executor(app.tasks, clock.boot, broker.capabilities.max_body)
        self._slots = Slots(threads, table, executor, self._settler.put, clock, grace)
        self._taker = Taker(
            self._consumer, self._slots.free, self._slots.deliver, clock, Patience(clock, random.random)
        )
        self._take_thread = threading.Thread(target=self._taker.run, name="tenure-taker", daemon=True)
        self._settle_thread = threading.Thread(target=self._settler.run, name="tenure-settler", daemon=True)

    def start(self) -> None:
        """Start all threads."""
        self._slots.start()
        self._settle_thread.start()
        self._take_thread.start()

    def drain(self) -> None:
        """Take nothing new, finish what runs, and settle it; returns when every settlement has been answered."""
        self._taker.stop()
        self._slots.drain()
        self._take_thread.join()
        self._slots.stop()
        self._settler.stop()
        self._settle_thread.join()
        self._dead_hooks.close(LAST_HOOKS)

    def close(self) -> None:
        """Close the connections; after the `bye`."""
        self._consumer.close()
