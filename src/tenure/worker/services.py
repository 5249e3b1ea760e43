"""The services of one worker process, put together: taker, slots and settler over one consumer and one table."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tenure.app import App
from tenure.broker import Broker
from tenure.clock import Clock
from tenure.job_log import name_jobs
from tenure.worker.body import Body
from tenure.worker.dead_hooks import DeadHooks
from tenure.worker.executor import Executor
from tenure.worker.interrupts import Interrupts
from tenure.worker.orphans import Orphans
from tenure.worker.patience import Patience
from tenure.worker.process_hooks import need_loop, run_start_hooks, run_stop_hooks
from tenure.worker.quota import Limits, Quota
from tenure.worker.room import Room, kinds_of_queues
from tenure.worker.settler import Settler
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tenure.worker.taker import Taker
from tenure.worker.telling import Events, Teller

if TYPE_CHECKING:
    from tenure.worker.loop import Loop

logger = logging.getLogger("tenure.worker")

LAST_CALL = 2.0
"""Seconds before the end of the grace time (a quarter of it at most) at which coroutines are cancelled."""

LAST_HOOKS = 5.0
"""Seconds that a leaving process gives to the `on_dead` hooks that still wait or run, and again to subscribers."""


LAST_ORPHANS = 1.0
"""Seconds in which a leaving process still asks what became of the jobs of others that are gone."""


class Services:
    """Takes, runs and settles jobs until drained; whoever starts them keeps the leases.

    `worn` is called once, with the reason, when by its `limits` this process, which was started at `started_at` (boot
    clock), is to be replaced.
    """

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
        async_slots: int,
        grace: float,
        visibility_timeout: float,
        isolate: bool = False,
        limits: Limits | None = None,
        worn: Callable[[str], None] = lambda why: None,
        started_at: float = 0.0,
    ) -> None:
        self._consumer = broker.consumer(queues, session=session, name=name, visibility_timeout=visibility_timeout)
        self._dead_hooks = DeadHooks(app)
        self._teller = Teller(app, clock)
        self._events = Events(app, name, clock.wall, self._teller.put)
        patience = Patience(clock, random.random)
        self._settler = Settler(self._consumer, table, patience, self._dead_hooks.put, self._events.answered)
        self._orphans = Orphans(broker, Patience(clock, random.random), self._dead_hooks.put, self._events.answered)
        self.tell_of = self._orphans.put
        """Tell of a job whose own process is gone how this hand-out of it has ended."""
        self._interrupts = Interrupts(clock)
        self._body = Body(app, self._events.started)
        executor = Executor(app.tasks, clock.boot, broker.capabilities.max_body, self._interrupts, self._body)
        self._app = app
        self._grace = grace
        self._loop = _loop_for(app)
        self._slots = Slots(
            threads,
            table,
            executor,
            self._settler.put,
            clock,
            loop=self._loop,
            coroutines=async_slots,
            queues=kinds_of_queues(queues, app.tasks),
            alone=isolate,
        )
        room: Callable[[float], Room] = self._slots.free
        deliver = self._slots.deliver
        if limits is not None and limits.any:
            quota = Quota(limits, table, room, deliver, worn, clock, started_at)
            room, deliver = quota.room, quota.deliver
        self._taker = Taker(self._consumer, room, deliver, clock, Patience(clock, random.random), table)
        self._lock = threading.Lock()
        self._last_call: threading.Timer | None = None
        self._ended = False
        self._settle_thread = threading.Thread(target=self._settler.run, name="tenure-settler", daemon=True)

    def prepare(self) -> None:
        """Run the app's hooks for the start of a process, before any job; raises StartHookError.

        From here on log records know their jobs, also where a hook sets up logging anew.
        """
        name_jobs()
        if self._loop is not None:
            self._loop.start()
        try:
            run_start_hooks(self._app.start_hooks, self._loop)
        except BaseException:
            if self._loop is not None:
                self._loop.stop()
            self._consumer.close()
            raise
        name_jobs()

    def start(self) -> None:
        """Start all threads."""
        self._events.worker("worker.started")
        self._interrupts.start()
        self._settle_thread.start()
        self._slots.start(self._taker.run)

    def look(self) -> None:
        """Look at once which of the jobs that run are to be ended; from any thread."""
        self._interrupts.look()

    def drain(self) -> None:
        """Take nothing new, finish what runs, and settle it; returns when every settlement has been answered."""
        self.stop_taking()
        self.hurry()
        self.finish_jobs()

    def stop_taking(self) -> None:
        """Take nothing new; returns when nothing more can come."""
        self._taker.stop()
        self._slots.drain()
        self._slots.finish_taking()

    def hurry(self) -> None:
        """Let the grace time begin; a second time does nothing.

        Coroutines that still run shortly before its end are cancelled, and their jobs given back: unlike a thread's,
        their code can be stopped and clean up.
        """
        with self._lock:
            if self._loop is None or self._ended or self._last_call is not None:
                return
            left = max(0.0, self._grace - min(LAST_CALL, self._grace / 4))
            self._last_call = threading.Timer(left, self._slots.interrupt)
            self._last_call.daemon = True
            self._last_call.start()

    def finish_jobs(self) -> None:
        """Let what runs finish and have it settled; after `stop_taking`."""
        self._slots.stop()
        with self._lock:
            self._ended = True
            if self._last_call is not None:
                self._last_call.cancel()
        self._interrupts.stop()
        self._settler.stop()
        self._settle_thread.join()
        self._orphans.close(LAST_ORPHANS)
        self._dead_hooks.close(LAST_HOOKS)
        self._events.worker("worker.stopped")
        self._teller.close(LAST_HOOKS)

    def finish(self) -> None:
        """Close what jobs had open, run the app's hooks for the end of a process, end the event loop; after `drain`."""
        self._body.close(self._loop)
        run_stop_hooks(self._app.stop_hooks, self._loop)
        if self._loop is not None:
            self._loop.stop()

    def close(self) -> None:
        """Close the connections; after the `bye`."""
        self._consumer.close()


def _loop_for(app: App) -> Loop | None:
    """Make an event loop if the app has any use for it; a process without coroutines never imports asyncio."""
    if not (any(task.is_async for task in app.tasks.values()) or need_loop([*app.start_hooks, *app.stop_hooks])):
        return None
    from tenure.worker.loop import Loop

    return Loop()
