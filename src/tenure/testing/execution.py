"""One execution of a job in this thread, step by step as a worker's slot does it."""

from __future__ import annotations

import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tenure import middleware
from tenure.app import App
from tenure.broker import Consumer
from tenure.clock import own_deadline
from tenure.events import Event, tell
from tenure.message import Delivery, Message, Settlement
from tenure.outcome import Outcome, Returned, UnknownTask
from tenure.settle import Policy, decide
from tenure.testing.clock import MovableClock
from tenure.testing.recording import RecordingBroker
from tenure.worker import body, opening
from tenure.worker.body import Body
from tenure.worker.dead_hooks import call_dead_hooks
from tenure.worker.executor import Call, Executor
from tenure.worker.keeper import LeaseKeeper, Watched
from tenure.worker.lease import Lease
from tenure.worker.loop import Loop
from tenure.worker.patience import Patience
from tenure.worker.process_hooks import need_loop, run_start_hooks, run_stop_hooks
from tenure.worker.settler import Settler, finished
from tenure.worker.table import Table
from tenure.worker.telling import Events

NAME = "inline"


@dataclass
class Stopped:
    """What an execution came to: its settlement (None: it was lost on purpose), and what the task raised.

    `problem` tells why a job was not run, or is dead without an exception of its own.
    """

    settlement: Settlement | None = None
    dead: bool = False
    error: BaseException | None = None
    traceback: TracebackType | None = None
    problem: str = ""


class Execution:
    """Takes, runs and settles one job at a time; a keeper in a thread of its own extends the lease meanwhile.

    `lose_once` are ids of jobs whose next success is not told to the broker: the worker is gone then, as far as the
    broker knows, and the job is handed out again.
    """

    def __init__(self, app: App, broker: RecordingBroker, clock: MovableClock) -> None:
        self._app = app
        self._broker = broker
        self._clock = clock
        self._caught = Stopped()
        self._dead = False
        self._table = Table.create(1, shared=False)
        self._table.surroundings.idle = lambda task, queue: False  # the one slot is the job's that asks
        limit = broker.capabilities.max_body
        self._events = Events(app, NAME, clock.wall, self._tell)
        self._body = Body(app, self._events.started)
        self._executor = Executor(app.tasks, clock.boot, limit, body=_Watched(self._body, self._catch))
        self._keeper = LeaseKeeper(broker.keeper(), clock, random.random)
        self._keeper.watch(Watched(self._table))
        self._keeping: threading.Thread | None = None
        self._consumer: Consumer | None = None
        self._queues: list[str] = []
        self._loop: Loop | None = None
        self._repeats: Counter[str] = Counter()
        self.lose_once: set[str] = set()

    def take(self) -> Delivery | None:
        """Return the next job that is ready, in whichever queue."""
        # A take is answered before what time has brought: freezegun's own ticks tell nobody that a job has fallen due.
        self._broker.server.look()
        queues = sorted({*self._app.queues(), *self._broker.queues()})
        if self._consumer is None or queues != self._queues:
            self._queues = queues
            self._session = secrets.token_hex(16)
            timeout = self._app.settings.visibility_timeout
            self._consumer = self._broker.consumer(queues, session=self._session, name=NAME, visibility_timeout=timeout)
        return next(iter(self._consumer.take(1, 0.0)), None)

    def run(self, delivery: Delivery) -> Stopped:
        """Run a delivery and settle it, or lose it after the work where that is wanted."""
        place, outcome, policy = self._execute(delivery)
        stopped = self._caught
        if isinstance(outcome, Returned) and delivery.message.id in self.lose_once:
            self.lose_once.discard(delivery.message.id)
            self._lose(place)
            return Stopped()
        settlement = decide(outcome, delivery, policy, self._clock.wall(), random.random())  # noqa: S311  (jitter)
        self._settle(place, delivery, settlement)
        stopped.settlement, stopped.dead = settlement, self._dead
        message = delivery.message
        if isinstance(outcome, UnknownTask):
            stopped.problem = f"job {message.id}: the app has no task {message.task}; import the module that defines it"
        elif self._dead:
            stopped.problem = f"job {message.id} of {message.task} is dead: {settlement.reason}"
        return stopped

    def repeat(self, message: Message, known: Mapping[str, Any]) -> Stopped:
        """Run a job that is done once more, as a worker does whose lease ran out; its word would be refused.

        `known` is what the broker knows of the job.
        """
        self._repeats[message.id] += 1
        fence = known["number"] + self._repeats[message.id]
        receipt = f"{message.id}:{fence}".encode()
        timeout = message.visibility_timeout or self._app.settings.visibility_timeout
        deadline = own_deadline(self._clock.boot(), timeout)
        attempt, losses = max(1, known["attempts"]), known["losses"] + self._repeats[message.id]
        place, _, _ = self._execute(Delivery(message, receipt, fence, attempt, losses, timeout, deadline))
        self._table.drop(place)
        return self._caught

    def _execute(self, delivery: Delivery) -> tuple[int, Outcome, Policy]:
        self._start()
        self._caught = Stopped()
        place = self._table.hold(delivery.receipt, delivery.deadline, delivery.visibility_timeout)
        assert place is not None  # there is room for one, and no hand-out comes twice
        lease = Lease(self._table, place, delivery.receipt, self._clock.boot)
        self._table.begin(0)
        if self._executor.is_async(delivery):
            # With a context of its own: what the test has set in its own is none of the job's.
            work = self._executor.execute_async(delivery, lease)
            outcome, policy = Context().run(self._ready_loop().call, work)
        else:
            outcome, policy = self._executor.execute(delivery, lease)
        return place, outcome, policy

    def _settle(self, place: int, delivery: Delivery, settlement: Settlement) -> None:
        self._dead = False
        assert self._consumer is not None  # the delivery came over it
        patience = Patience(self._clock, random.random)
        settler = Settler(self._consumer, self._table, patience, self._died, self._events.answered)
        self._table.settling(place, settlement.kind)
        settler.put(finished(delivery, place, settlement, 0.0)._replace(delivery=delivery))
        settler.stop()
        settler.run()

    def _died(self, delivery: Delivery, settlement: Settlement) -> None:
        self._dead = True
        call_dead_hooks(self._app, delivery, settlement)

    def _tell(self, event: Event) -> None:
        tell(self._app.subscribers.get(event.name, ()), event)

    def _lose(self, place: int) -> None:
        """Let the broker believe that this process has died."""
        self._table.drop(place)
        self._broker.keeper().bye(self._session, "lost", "run_twice: the worker is lost after the work", ())
        self._consumer = None

    def _catch(self, error: BaseException) -> None:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename in _OURS:
            frames = frames.tb_next  # the test's author sees no frame between the test and the task
        self._caught = Stopped(error=error, traceback=frames)

    def _start(self) -> None:
        """Do what a worker process does before its first job."""
        if self._keeping is not None:
            return
        hooks = self._app.start_hooks
        run_start_hooks(hooks, self._ready_loop() if need_loop(hooks) else None)
        self._events.worker("worker.started")
        self._keeping = threading.Thread(target=self._keeper.run, name="tenure-test-keeper", daemon=True)
        self._keeping.start()

    def _ready_loop(self) -> Loop:
        """Return the event loop, in a thread of its own as in a worker: the test may run in one of another loop."""
        if self._loop is None:
            self._loop = Loop()
            self._loop.start()
        return self._loop

    def close(self) -> None:
        """Do what a worker process does after its last job."""
        if self._keeping is not None:
            self._keeper.stop()
            self._keeping.join()
            self._events.worker("worker.stopped")
            self._body.close(self._loop)
            hooks = self._app.stop_hooks
            run_stop_hooks(hooks, self._ready_loop() if need_loop(hooks) else self._loop)
        if self._loop is not None:
            self._loop.stop()


_OURS = frozenset({__file__, body.__file__, middleware.__file__, opening.__file__})


class _Watched:
    """A body that tells of what it raises; the worker's code turns it into text."""

    def __init__(self, body: Body, caught: Callable[[BaseException], None]) -> None:
        self._body = body
        self._caught = caught

    def __call__(self, call: Call) -> Any:
        if call.task.is_async:
            return self._awaited(call)
        try:
            return self._body(call)
        except BaseException as error:
            self._caught(error)
            raise

    async def _awaited(self, call: Call) -> Any:
        try:
            return await self._body(call)
        except BaseException as error:
            self._caught(error)
            raise
