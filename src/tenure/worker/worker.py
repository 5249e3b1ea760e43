"""A worker in one process, without a supervisor: `app.worker().run()`."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenure.app import App
from tenure.broker import EndedAs
from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigError
from tenure.names import checked, did_you_mean, shown
from tenure.worker.commands import ONE_SIGNAL, Commands
from tenure.worker.counts import Counts
from tenure.worker.health import Health, parse_address
from tenure.worker.heartbeat import check_broker
from tenure.worker.keeper import EMPTY_BYE_TIME, NO_BYE, Farewell, LeaseKeeper, Watched
from tenure.worker.options import (
    DEFAULT_ASYNC_SLOTS,
    DEFAULT_GRACE,
    DEFAULT_THREADS,
    default_name,
    new_session,
    start_line,
)
from tenure.worker.room import mixed_queues
from tenure.worker.services import Services
from tenure.worker.table import Table
from tenure.worker.vitals import look_at

logger = logging.getLogger("tenure.worker")

_SIGNALS = {signal.SIGTERM: "signal", signal.SIGINT: "signal"}
if hasattr(signal, "SIGUSR1"):
    _SIGNALS[signal.SIGUSR1] = "counts"


class Worker:
    """Runs an app's jobs in this process; `grace` and `visibility_timeout` are seconds, `queues` None means all.

    Its keeper is a thread here, so code that does not let go of the interpreter for long can lose its lease; the
    worker command has a supervisor against that, which also tells the health (`health`: HOST:PORT) meanwhile.  `clock`
    is what leases are measured by; tests pass their own.
    """

    def __init__(
        self,
        app: App,
        queues: Sequence[str] | None = None,
        threads: int = DEFAULT_THREADS,
        name: str | None = None,
        grace: float = DEFAULT_GRACE,
        visibility_timeout: float | None = None,
        async_slots: int = DEFAULT_ASYNC_SLOTS,
        clock: Clock | None = None,
        health: str | None = None,
    ) -> None:
        if health is not None:
            parse_address(health)
        self._app = app
        self._health = health
        self._queues = None if queues is None else _checked_queues(queues)
        self._threads = threads
        self._async_slots = async_slots
        self._name = name
        self._grace = grace
        self._visibility_timeout = app.settings.visibility_timeout if visibility_timeout is None else visibility_timeout
        self._clock: Clock = clock or SystemClock()
        self._commands = Commands()
        self._table: Table | None = None
        self._keeper: LeaseKeeper | None = None
        self._keeping: threading.Thread | None = None

    def stop(self) -> None:
        """Drain, from another thread: take nothing new, finish what runs, then let `run` return."""
        self._commands.put("stop")

    def run(self) -> Counts:
        """Work until SIGTERM, SIGINT or `stop()`, then drain and return the counts.

        In the main thread, where it is the program's work, it says how it begins (on stderr) and prints its counts at
        the end.  When the grace time is over and code still runs, the counts are printed and the process ends at once:
        what has not stopped comes back when its lease runs out.
        """
        self._table = table = Table.create(self._threads + self._async_slots, shared=False)
        health = self._tell_health(table)
        try:
            return self._run(table, health)
        finally:
            if health is not None:
                health.close()

    def _run(self, table: Table, health: Health | None) -> Counts:
        self._app.import_includes()
        queues = require_queues(self._app, self._queues)
        name = self._name or default_name()
        session = new_session()
        services = Services(
            self._app,
            self._app.broker,
            table,
            self._clock,
            queues=queues,
            session=session,
            name=name,
            threads=self._threads,
            async_slots=self._async_slots,
            grace=self._grace,
            visibility_timeout=self._visibility_timeout,
        )
        services.prepare()
        line = self._app.broker.keeper()
        check_broker(line)
        self._keeper = keeper = LeaseKeeper(line, self._clock, random.random)
        keeper.watch(Watched(table, overtime=self._grace, look=services.look, session=session))
        self._keeping = _thread("tenure-keeper", keeper.run)
        if health is not None:
            health.ask(self._app.broker.keeper())
        alone = threading.current_thread() is threading.main_thread()
        if alone:
            print(start_line(name, 1, self._threads, queues, sorted(self._app.tasks)), file=sys.stderr, flush=True)
        for warning in queue_warnings(self._app, queues):
            logger.warning("%s", warning)
        with self._commands.from_signals(_SIGNALS):
            services.start()
            self._until_told(table)
            self._drain(services, keeper, table, session)
        keeper.stop()
        line.close()
        services.close()
        counts = table.counts()
        if alone:
            print(counts.line(), flush=True)
        return counts

    def _tell_health(self, table: Table) -> Health | None:
        """Answer for the health of this process, where that was asked for."""
        if self._health is None:
            return None
        slots, begun_at = (self._threads, self._async_slots), self._clock.boot()

        def look(health: Health) -> None:
            keeping = self._keeping
            process = look_at(os.getpid(), table, slots, begun_at, ready=keeping is not None)
            alive = keeping is None or keeping.is_alive()
            health.see((process,), keeping=alive, leaving=table.surroundings.stopping)

        health = Health(self._health, 1, self._clock, look)
        logger.info("health on %s/live and %s/ready", health.url, health.url)
        return health

    def _until_told(self, table: Table) -> None:
        while (command := self._commands.get()) == "counts":
            print(table.counts().line(), flush=True)
        if command == "signal":
            logger.info("finishing what runs, for at most %g s", self._grace)

    def _drain(self, services: Services, keeper: LeaseKeeper, table: Table, session: str) -> None:
        def finish() -> None:
            services.drain()
            services.finish()
            self._commands.put("drained")
            keeper.farewell(Farewell(session, "left", "", (), answered))

        def answered(ended: list[EndedAs]) -> None:
            self._commands.put("ended")

        clock = SystemClock()
        _thread("tenure-drain", finish)
        told_at = clock.boot()
        over_at = told_at + self._grace
        drained = False
        while True:
            command = self._commands.get(max(0.0, over_at - clock.boot()))
            if command == "ended":
                return
            if command == "drained":
                drained = True  # all is settled, and only the bye is missing
                over_at = min(over_at, clock.boot() + EMPTY_BYE_TIME)
            elif command == "counts":
                print(table.counts().line(), flush=True)
            elif command is None and drained:
                logger.warning(NO_BYE)
                return
            elif command is None or (command == "signal" and clock.boot() - told_at > ONE_SIGNAL):
                _end_at_once(table)  # the grace is over, or it was asked a second time


def require_queues(app: App, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the queues to work on; raises ConfigError when the app has no tasks."""
    if not app.tasks:
        raise ConfigError(
            "the app has no tasks, so there is nothing that this worker could run; decorate a function with @app.task, "
            'and if tasks are in other modules, name these: App(..., include=["shop.jobs"])'
        )
    return tuple(app.queues() if asked is None else asked)


def _checked_queues(queues: object) -> tuple[str, ...]:
    """Return the queues that a caller asks for, each once; raises ConfigError."""
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        example = f"[{queues!r}]" if isinstance(queues, str) else "['default', 'mail']"
        raise ConfigError(f"queues={shown(queues)} has to be a list of names, such as queues={example}")
    names = tuple(dict.fromkeys(checked("queue", name) for name in queues))
    if not names:
        raise ConfigError("queues names no queues to work on; leave it out to work on all queues of the app's tasks")
    return names


def queue_warnings(app: App, queues: Sequence[str], alone: bool = False) -> list[str]:
    """Return the lines that a worker warns with when it starts to work on these queues.

    `alone`: its processes run one job at a time, so that jobs of either kind wait for those of both in any case.
    """
    mixed = "" if alone else mixed_queues(queues, app.tasks)
    return [line for line in (unused_queues(app, queues), unnamed_queues(app, queues), mixed) if line]


def unused_queues(app: App, queues: Sequence[str]) -> str:
    """Return a line that warns of queues which no task of the app uses by itself; an empty one: there are none."""
    known = app.queues()
    missing = [name for name in queues if name not in known]
    if not missing:
        return ""
    return (
        f"queues that are no task's own: {', '.join(missing)}. "
        "Only what calls put there with options(queue=) will come." + did_you_mean(missing[0], known)
    )


def unnamed_queues(app: App, queues: Sequence[str]) -> str:
    """Return a line that warns of queues that only a function in the app's routes knows; empty where there is none."""
    if not app.routing.by_call or set(queues) != set(app.queues()):
        return ""
    return (
        "routes= has a function, so jobs may wait in queues that no task names; this worker takes nothing from those. "
        "Name all queues to work on: --queues"
    )


def _end_at_once(table: Table) -> None:
    for entry in table.entries():
        table.lose(entry)
    print(table.counts().line(), flush=True)
    sys.stderr.flush()
    os._exit(1)


def _thread(name: str, target: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
