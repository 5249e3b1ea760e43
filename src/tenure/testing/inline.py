"""Runs jobs in the test's own thread, through the worker's own code: codec, execution, decision, settlement."""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from tenure.app import App
from tenure.job import Job
from tenure.message import Delivery
from tenure.task import Task
from tenure.testing.clock import MovableClock
from tenure.testing.execution import Execution, Stopped
from tenure.testing.recording import AddedCall, RecordingBroker, added_calls, call_text, matching, not_added
from tenure.testing.threads import ThreadedWorker

MAX_RUNS = 1_000
"""Executions of one `run_all`, unless it is told otherwise: jobs that add each other would go on for ever."""
_ROUNDED = 0.002
"""Seconds beyond a due time that was rounded to milliseconds."""
_GRACE = 86_400.0
"""Seconds: a worker whose grace is over ends its process, which is the test's here."""
_STOP_LIMIT = 10.0
"""Seconds in which a worker in a thread has to end."""


_workers: WeakKeyDictionary[App, InlineWorker] = WeakKeyDictionary()


class JobDidNotRun(AssertionError):
    """A job of the test could not be run, or not as the test wanted it."""


class InlineWorker:
    """Runs the jobs of one app when the test says so, and tells what was added.

    `app` is the app, `clock` its clock, which `clock.move(seconds)` moves on, `broker` holds the jobs.
    """

    def __init__(self, app: App, broker: RecordingBroker, clock: MovableClock) -> None:
        self.app = app
        self.broker = broker
        self.clock = clock
        self._execution = Execution(app, broker, clock)
        self._retries: list[float] = []

    # -- what was added -------------------------------------------------------------------------------------------

    def added(self, task: Task[..., Any] | None = None) -> list[AddedCall]:
        """Return what was added so far, in order: the jobs of one task, or all."""
        return added_calls(self.app, self.broker.messages, task)

    def assert_added(self, task: Task[..., Any], /, *args: Any, count: int | None = None, **kwargs: Any) -> None:
        """Raise AssertionError unless a job was added for this call: at least once, or exactly `count` times.

        Defaults and names of arguments make no difference; `unittest.mock.ANY` and `pytest.approx` may stand for one.
        Raises TypeError where the task cannot be called so.
        """
        __tracebackhide__ = True
        same = self.added(task)
        found = len(matching(task, same, args, kwargs))
        if found < 1 if count is None else found != count:
            raise AssertionError(not_added(call_text(task.name, args, kwargs), found, count, same, self.added()))

    # -- running --------------------------------------------------------------------------------------------------

    def run_all(self, *, until_idle: bool = False, raise_errors: bool = True, limit: int = MAX_RUNS) -> int:
        """Run everything that is ready, and what that adds, until nothing is left; returns how often a task was run.

        A failed attempt is tried again as a worker would, the clock being moved on to its time; jobs that were called
        for later wait, unless `until_idle`: then the clock is moved on to these as well.  When a job has failed for
        good, its exception is raised out of here, after the job has been settled; with `raise_errors=False` the job
        is dead and no more.  Raises JobDidNotRun for a job that no task is there for, and after `limit` executions.
        """
        __tracebackhide__ = True
        runs = 0
        while True:
            if (delivery := self._execution.take()) is not None:
                runs += 1
                self._run(delivery, raise_errors)
                if runs >= limit:
                    last = f"{delivery.message.id} of {delivery.message.task}"
                    raise JobDidNotRun(f"run_all has run {runs} jobs and comes to no end; the last one was {last}")
            elif not self._go_on(until_idle):
                return runs

    def run_twice(self, job: Job[Any] | str, *, raise_errors: bool = True) -> None:
        """Run a job to its end and then once more, as when a worker dies between the work and the word of it.

        What else is ready runs as well.  A job that is done already is delivered once more.  Raises JobDidNotRun for
        one that was not added here, or was not done.
        """
        __tracebackhide__ = True
        id = job if isinstance(job, str) else job.id
        message = next((one for one in self.broker.messages if one.id == id), None)
        if message is None:
            raise JobDidNotRun(f"job {id} was not added in this test")
        known = self.broker.admin().job(id)
        if known is not None and known["state"] == "done":
            self._raise(self._execution.repeat(message, known), always=raise_errors)
            return
        self._execution.lose_once.add(id)
        try:
            self.run_all(raise_errors=raise_errors)
        finally:
            missed = id in self._execution.lose_once
            self._execution.lose_once.discard(id)
        if missed or (raise_errors and self.state(id) != "done"):
            raise JobDidNotRun(f"job {id} of {message.task} did not run twice: it is {self.state(id)}")

    def state(self, job: Job[Any] | str) -> str:
        """Return a job's state, such as `done` or `dead`; `unknown` where there is no such job."""
        found = self.broker.admin().job(job if isinstance(job, str) else job.id)
        return "unknown" if found is None else str(found["state"])

    def _run(self, delivery: Delivery, raise_errors: bool) -> None:
        __tracebackhide__ = True
        stopped = self._execution.run(delivery)
        if stopped.settlement is not None and stopped.settlement.kind == "retry" and not stopped.dead:
            heapq.heappush(self._retries, self.clock.wall() + stopped.settlement.delay)
        self._raise(stopped, always=raise_errors and stopped.dead, missing=raise_errors)

    def _raise(self, stopped: Stopped, *, always: bool, missing: bool = False) -> None:
        """Let the error of an execution reach the test, where it should."""
        __tracebackhide__ = True
        if stopped.error is not None and (always or _ends_a_test(stopped.error)):
            raise stopped.error.with_traceback(stopped.traceback)
        if stopped.problem and (always or missing):
            raise JobDidNotRun(stopped.problem)

    def _go_on(self, until_idle: bool) -> bool:
        """Move the clock on to the next retry, or to whatever falls due next; False when there is none."""
        now = self.clock.wall()
        while self._retries and self._retries[0] <= now:
            heapq.heappop(self._retries)
        due = self.broker.server.next_due()
        if due is not None and not until_idle:
            due = heapq.heappop(self._retries) if self._retries else None
        if due is None:
            return False
        self.clock.move(max(0.0, due - now) + _ROUNDED)
        return True

    # -- a worker in threads --------------------------------------------------------------------------------------

    @contextmanager
    def running(self, threads: int = 8) -> Iterator[None]:
        """Have a real worker run jobs in threads of its own inside of the `with` block; it finishes what it began.

        Nothing that its tasks raise reaches the test: look at results and states.  A clock that is moved meanwhile ends
        no lease, unless a task moves it.  Raises JobDidNotRun when a job still runs ten seconds after the block.
        """
        worker = ThreadedWorker(self.app, threads=threads, grace=_GRACE, clock=self.clock)
        thread = threading.Thread(target=worker.run, name="tenure-test-worker", daemon=True)
        thread.start()
        try:
            with self.clock.guarded(partial(worker.living, self.broker.server)):
                yield
        finally:
            worker.stop()
            thread.join(_STOP_LIMIT)
        if thread.is_alive():
            raise JobDidNotRun(f"a job still runs {_STOP_LIMIT:g} s after the worker was told to stop")

    def close(self) -> None:
        """Let go of the jobs."""
        self._execution.close()
        self.broker.end()


@contextmanager
def inline_worker(app: App) -> Iterator[InlineWorker]:
    """Switch an app to `memory://` inside of the `with` block; the app's own broker comes back after it."""
    clock = MovableClock()
    broker = RecordingBroker(clock)
    with app.on_broker(broker):
        worker, outer = InlineWorker(app, broker, clock), _workers.get(app)
        _workers[app] = worker
        try:
            yield worker
        finally:
            del _workers[app]
            if outer is not None:
                _workers[app] = outer
            worker.close()


def worker_of(app: App) -> InlineWorker | None:
    """Return the worker of an app that is switched to `memory://` already."""
    return _workers.get(app)


def _ends_a_test(error: BaseException) -> bool:
    """Whether this is meant for whoever runs the test: Ctrl+C, or pytest's own fail, skip, exit and time limits."""
    outcomes = sys.modules.get("_pytest.outcomes")
    kinds = (KeyboardInterrupt,) if outcomes is None else (KeyboardInterrupt, outcomes.OutcomeException)
    return isinstance(error, kinds)
