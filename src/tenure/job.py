"""The handle that `.delay()` returns: what became of the job, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from math import isinf, isnan
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tenure.apps import app_named
from tenure.broker import CancelAnswer, JobState, ResultStore
from tenure.codec import NotStored, Stored, unpack_result
from tenure.context import Progress, current_job, unpack_progress, would_deadlock
from tenure.errors import ConfigError, ResultsDisabled, ResultTimeout, WouldDeadlock
from tenure.message import State
from tenure.names import shown
from tenure.results import OVER, check_known, in_a_thread, value_of, wait_for, wait_in_loop

if TYPE_CHECKING:
    from tenure.app import App

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Timeout = float | timedelta | None


@dataclass(frozen=True, slots=True)
class Job(Generic[R_co]):
    """One call of a task that the broker has stored; `R_co` is what the task returns.

    `id` is 32 hexadecimal digits.  `key` is the idempotency key, which is the id where none was given.  `created` is
    False when a job with that key was there before: then `id` is the first one's, and so are its state and result.
    `queue` is where this call would have it, also where the first one's job lies in another queue.  `task` and `queue`
    are empty where the handle was made from the id alone.  A handle can be pickled; where it is read, an app of the
    same name has to be there.
    """

    id: str
    key: str
    queue: str
    task: str
    created: bool
    _app: App | str | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        name = self._app if self._app is None or isinstance(self._app, str) else self._app.name
        return Job, (self.id, self.key, self.queue, self.task, self.created, name)

    def __copy__(self) -> Job[R_co]:
        return self

    def __deepcopy__(self, memo: object) -> Job[R_co]:
        return self

    def state(self) -> State:
        """Return what the job is now: scheduled, ready, running, done, dead or cancelled.

        Raises JobNotFound, ResultExpired (it ended long ago), BrokerUnavailable.
        """
        return _known(self._store().states([self.id])[0])

    def progress(self) -> Progress | None:
        """Return what the running job last said of itself with `ctx.progress`; None: it has not, or does not run.

        Raises what `state` does.
        """
        state = self._store().states([self.id])[0]
        check_known(state)
        return None if state.progress is None else unpack_progress(state.progress)

    def wait(self, timeout: Timeout = None) -> State:
        """Wait until the job has ended, at most `timeout` seconds (None: as long as it takes), and return its state.

        A job that failed or was cancelled raises nothing here.  Raises WouldDeadlock inside of a job where no slot
        could run this one, ConfigError for a timeout that cannot be, and what `state` does.
        """
        seconds = _seconds(timeout)
        return _known(self._early(seconds) or wait_for(self._store(), [self.id], seconds)[0])

    def result(self, timeout: Timeout = None) -> R_co:
        """Wait for what the task returns, at most `timeout` seconds (None: as long as it takes).

        Raises JobFailed (with the worker's traceback, and the error as cause), JobCancelled, ResultTimeout,
        ResultsDisabled (at once), ResultNotStored, ResultExpired, JobNotFound, WouldDeadlock, and BrokerUnavailable
        when the broker does not answer for half a minute.
        """
        self._check_kept()
        seconds = _seconds(timeout)
        return self._value(self._early(seconds) or wait_for(self._store(), [self.id], seconds)[0], seconds)

    async def aresult(self, timeout: Timeout = None) -> R_co:  # noqa: ASYNC109  (the same call as `result`)
        """Do what `result` does, without ever blocking the event loop."""
        self._check_kept()
        seconds = _seconds(timeout)
        here = copy_context()
        early = await in_a_thread(lambda: here.run(self._early, seconds)) if self._to_look() else None
        if early is not None:
            return self._value(early, seconds)
        return self._value((await wait_in_loop(self._store(), [self.id], seconds))[0], seconds)

    def cancel(self, *, terminate: bool = False) -> CancelAnswer:
        """Say that the job is not wanted any more; returns what follows from it.

        "cancelled": it had not begun, and never will.  "asked": it runs; about a second later its task finds
        `ctx.cancelled` set, and with `terminate` it is ended there as by its time limit.  Whatever such a job comes to,
        it is not run again; one that is done or dead all the same stays so.  "already done", "already dead" and
        "already cancelled": it had ended before.  The wish is kept on disk, and asked twice it changes nothing.
        Raises JobNotFound (nothing is kept of it) and BrokerUnavailable.
        """
        admin = self._owner().broker.admin()
        if admin is None:
            raise ConfigError(f"this broker can cancel nothing, so job {self.id} goes on")
        return admin.cancel(self.id, terminate)

    async def acancel(self, *, terminate: bool = False) -> CancelAnswer:
        """Do what `cancel` does, without ever blocking the event loop."""
        return await in_a_thread(lambda: self.cancel(terminate=terminate))

    def _value(self, state: JobState, timeout: float | None) -> R_co:
        app = self._owner()
        task = app.tasks.get(self.task)
        read: Callable[[bytes], Stored | NotStored] = unpack_result if task is None else task.unpack_result
        queue = state.queue or self.queue
        full = state.state == "ready" and would_deadlock(self.task or None, queue or None)
        told = value_of(state, read, timeout=timeout, importable=app.include, queue=queue, full=full)
        return cast("R_co", told)

    def _check_kept(self) -> None:
        task = self._owner().tasks.get(self.task)
        if task is not None and not task.defaults.results:
            raise ResultsDisabled(
                f"task {self.task} keeps no results (results=False), so job {self.id} has none to wait for; "
                "job.wait() tells when it has ended",
                self.id,
            )

    def _early(self, timeout: float | None) -> JobState | None:
        """Look before a wait that could be for ever: see the function of this name."""
        states = _early([self], timeout) if self._to_look() else None
        return None if states is None else states[0]

    def _to_look(self) -> bool:
        """Whether a wait here has to be preceded by a look at the job."""
        return would_deadlock(self.task or None, self.queue) if self._knows_queue() else bool(current_job)

    def _knows_queue(self) -> bool:
        """Whether the job is in the queue of this handle; the first job of a key, or a bare id, may be elsewhere."""
        return self.created and bool(self.queue)

    def _is_stuck(self, state: JobState) -> bool:
        """Whether the job has not begun, and no slot of the worker that this runs in could take it."""
        if state.state in OVER or state.state == "running":
            return False
        return would_deadlock(self.task or None, state.queue or self.queue or None)

    def _store(self) -> ResultStore:
        store = self._owner().broker.results()
        if store is None:
            raise ResultsDisabled(f"the broker keeps no results, so nothing can be told of job {self.id}", self.id)
        return store

    def _owner(self) -> App:
        app = self._app
        if app is None or isinstance(app, str):
            return app_named(app, self)
        return app


def as_completed(jobs: Iterable[Job[T]], timeout: Timeout = None) -> Iterator[Job[T]]:
    """Yield the jobs in the order in which they end, each once; a job that failed or is not known counts as ended.

    All have to be of one app.  `timeout` is seconds from the call; raises ResultTimeout when some have not ended by
    then, naming how many, and WouldDeadlock, BrokerUnavailable, and ConfigError for jobs of two apps.
    """
    seconds = _seconds(timeout)
    end = None if seconds is None else time.monotonic() + seconds
    waiting: dict[str, list[Job[T]]] = {}
    for job in jobs:
        waiting.setdefault(job.id, []).append(job)
    if len({id(job._owner()) for same in waiting.values() for job in same}) > 1:
        raise ConfigError("as_completed takes jobs of one app; call it once for each app")
    return _as_completed(waiting, seconds, end)


def _as_completed(waiting: dict[str, list[Job[T]]], timeout: float | None, end: float | None) -> Iterator[Job[T]]:
    while waiting:
        first = next(iter(waiting.values()))[0]
        left = None if end is None else max(0.0, end - time.monotonic())
        states = _states(waiting, first, left)
        over = [state.id for state in states if state.state in OVER]
        for id in over:
            yield from waiting.pop(id)
        if not over and end is not None and time.monotonic() >= end:
            raise ResultTimeout(
                f"{len(waiting)} jobs, {first.id} the first, had not ended within {timeout:g} s", first.id
            )


def _states(waiting: dict[str, list[Job[T]]], first: Job[T], left: float | None) -> list[JobState]:
    """Wait for one of the jobs; where that could be for ever, only look, and say so if none has ended."""
    store = first._store()
    if left == 0 or not any(same[0]._to_look() for same in waiting.values()):
        return wait_for(store, list(waiting), left)
    early = _early([same[0] for same in waiting.values()], left)
    return wait_for(store, list(waiting), left) if early is None else early


def _early(jobs: Sequence[Job[Any]], timeout: float | None) -> list[JobState] | None:
    """Look at jobs before a wait that could be for ever.

    Returns the state of each, if nothing is to be waited for, and None where one may wait; raises WouldDeadlock.
    """
    store = jobs[0]._store()
    stuck: list[Job[Any]] = []
    for _ in range(2):  # what was taken between the look and the count of the slots is what fills the last of them
        states = store.states([job.id for job in jobs])
        if timeout == 0 or any(state.state in OVER for state in states):
            return states
        stuck = [job for job, state in zip(jobs, states, strict=True) if job._is_stuck(state)]
        if not stuck:
            return None
    raise WouldDeadlock(
        f"job {stuck[0].id} would be waited for inside of a job, and no slot of this worker is free to take it: that "
        "could be for ever. Return and let it add a further job when it is done, or run it on a queue of other "
        "workers, or give this worker more slots",
        stuck[0].id,
    )


def _known(state: JobState) -> State:
    check_known(state)
    return cast("State", state.state)


def _seconds(timeout: Timeout) -> float | None:
    """Return a timeout in seconds; raises ConfigError for what is none."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if type(seconds) not in (int, float) or isnan(seconds) or seconds < 0:
        raise ConfigError(f"timeout={shown(timeout)} is not possible: give seconds of at least 0, or None")
    return None if isinf(seconds) else float(seconds)
