"""Turns a delivery into an outcome, in small steps: find the task, read the arguments, call, pack the result."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import lru_cache
from inspect import iscoroutine
from typing import Any, NamedTuple

from tenure.codec import pack_not_stored
from tenure.context import Hold, JobContext, enter, named
from tenure.errors import DecodeError, LeaseLost, NotSerializable
from tenure.message import Delivery, Message, Raw
from tenure.outcome import Broken, Died, Interrupted, Newer, Outcome, Returned, UnknownTask, failure_from
from tenure.settle import Policy, ended_as, outcome_of
from tenure.task import Task
from tenure.worker.body import function_of
from tenure.worker.interrupts import CoroutineRun, Interrupts, ThreadRun
from tenure.worker.room import kind_of
from tenure.worker.term import Term

logger = logging.getLogger("tenure.worker")

_POLICIES = 256
_DISABLED = pack_not_stored("disabled", "the task keeps no results (results=False)")


class Call(NamedTuple):
    """A call that is ready to be made."""

    task: Task[..., Any]
    context: JobContext
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    policy: Policy


class Executor:
    """Runs deliveries; `boot` is the boot clock and `max_result` the broker's limit for a body in bytes.

    `interrupts` end a function whose lease is lost or whose time limit is over; without them it runs on.  `body` makes
    the call.  Whatever the function raises, SystemExit and KeyboardInterrupt included, is an outcome and goes no
    further.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        boot: Callable[[], float],
        max_result: int,
        interrupts: Interrupts | None = None,
        body: Callable[[Call], Any] = function_of,
    ) -> None:
        self._tasks = tasks
        self._body = body
        self._boot = boot
        self._max_result = max_result
        self._interrupts = interrupts
        self._pid = os.getpid()
        self._policy = lru_cache(_POLICIES)(_policy)

    def home(self, task: str) -> tuple[int, str] | None:
        """Return the kind of slot that a task's jobs run in, and its own queue; None for one not known here."""
        found = self._tasks.get(task)
        return None if found is None else (kind_of(found), found.queue)

    def is_async(self, delivery: Delivery) -> bool:
        """Whether this is a job for `execute_async`."""
        task = self._tasks.get(delivery.message.task)
        return task is not None and task.is_async

    def execute(self, delivery: Delivery, hold: Hold) -> tuple[Outcome, Policy]:
        """Run one delivery of a plain function; returns what it came to, and what its task and message allow next."""
        call = self._prepare(delivery, hold)
        if type(call) is not Call:
            return call  # type: ignore[return-value]
        # A context of its own: what one job sets there, another must not find.
        return Context().run(self._call, call, delivery), call.policy

    async def execute_async(self, delivery: Delivery, hold: Hold) -> tuple[Outcome, Policy]:
        """Run one delivery of an `async def`; to be awaited in an asyncio task with a context of its own."""
        call = self._prepare(delivery, hold)
        if not isinstance(call, Call):
            return call
        enter(call.context)
        run, term = None, Term(hold, call.task.defaults.on_lease_lost == "raise")
        if self._interrupts is not None:
            run = CoroutineRun(self._interrupts, term)
        try:
            body = self._body(call)
            value = await (body if run is None else run.call(term.earliest(delivery.deadline), body))
        except BaseException as error:  # noqa: BLE001  (SystemExit in a coroutine would end the event loop)
            self._end_if_forked(call)
            return _cut_short(run, call, delivery, error) or _raised(error, call), call.policy
        self._end_if_forked(call)
        return _cut_short(run, call, delivery) or self._returned(value, call), call.policy

    def cut_off(self, delivery: Delivery, error: BaseException) -> tuple[Outcome, Policy]:
        """Return what it means that `error` ended a coroutine before its first step: what it means after it."""
        message = delivery.message
        task = self._tasks.get(message.task)
        if task is None or not isinstance(message, Message):
            return outcome_of(error, Policy()), Policy()
        policy = self._policy(task, message.max_attempts)
        return outcome_of(error, policy), policy

    def policy_of(self, message: Message) -> Policy:
        """Return what the task of a message, as far as it is known here, and the message allow."""
        task = self._tasks.get(message.task)
        return Policy(message.max_attempts) if task is None else self._policy(task, message.max_attempts)

    def _prepare(self, delivery: Delivery, hold: Hold) -> Call | tuple[Outcome, Policy]:
        message = delivery.message
        if type(message) is not Message:
            return _unreadable(message), Policy()  # type: ignore[arg-type]
        task = self._tasks.get(message.task)
        if task is None:
            logger.warning("no task %s here; job %s is released for another worker", message.task, message.id)
            return UnknownTask(message.task), Policy(message.max_attempts)
        policy = self._policy(task, message.max_attempts)
        try:
            args, kwargs = task.unpack(message)
        except DecodeError as error:
            return _undecoded(error), policy
        except TypeError as error:  # the function has changed since the call: no try will make them fit
            return Broken(f"bad arguments: {error}"), policy
        context = self._context(message, delivery, hold)
        if self._boot() >= delivery.deadline and context.lease_lost:
            return Interrupted(failure_from(LeaseLost("the lease was lost before the arguments were read"))), policy
        if logger.isEnabledFor(logging.INFO):
            where = (message.task, message.id, delivery.attempt)
            logger.info("start %s %s attempt %d", *where, extra=named(context))
        return Call(task, context, args, kwargs, policy)

    def _context(self, message: Message, delivery: Delivery, hold: Hold) -> JobContext:
        return JobContext(
            message.id,
            message.id if message.key is None else message.key,
            message.queue,
            message.task,
            delivery.attempt,
            delivery.fence,
            delivery.losses,
            hold,
            self._boot,
            message.headers,
        )

    def _call(self, call: Call, delivery: Delivery) -> Outcome:
        enter(call.context)
        hold = call.context.hold
        run, term = None, Term(hold, call.task.defaults.on_lease_lost == "raise")
        if self._interrupts is not None:
            run = ThreadRun(self._interrupts, term)
        try:
            value = self._run(call) if run is None else run.call(term.earliest(delivery.deadline), self._run, call)
        except BaseException as error:  # noqa: BLE001  (SystemExit of a task is no reason to end the worker)
            return _cut_short(run, call, delivery, error) or _raised(error, call)
        cut_short = _cut_short(run, call, delivery)
        if cut_short is not None:
            return cut_short
        if value is None and call.task.defaults.results:
            return _NOTHING
        return self._returned(value, call)

    def _run(self, call: Call) -> Any:
        try:
            return self._body(call)
        finally:
            self._end_if_forked(call)

    def _end_if_forked(self, call: Call) -> None:
        """End a process that the function has forked and that came back out of it.

        It has a copy of this thread and nothing else of the worker, and it maps the table that the counts are in.
        """
        if os.getpid() != self._pid:
            os.write(2, f"tenure: a fork of task {call.task.name} came back and was ended; use os._exit()\n".encode())
            os._exit(1)

    def _returned(self, value: Any, call: Call) -> Outcome:
        """Pack a result; one that cannot be kept is told of in its place, for the work itself is done."""
        if hasattr(type(value), "__await__"):
            return _not_awaited(value, call.task)
        if not call.task.defaults.results:
            return Returned(_DISABLED)
        if value is None:
            return _NOTHING
        try:
            data = call.task.pack_result(value)
        except NotSerializable as error:
            return self._not_kept(call, "not storable", str(error))
        if len(data) > self._max_result:
            return self._not_kept(call, "too large", f"the result has {len(data)} bytes, limit {self._max_result}")
        return Returned(data)

    def _not_kept(self, call: Call, kind: Any, why: str) -> Returned:
        # Why it has no wire form may quote it, and is for those alone who ask for the result.
        told = kind if kind == "not storable" else why
        logger.warning("the result of %s %s is not kept: %s", call.task.name, call.context.id, told)
        return Returned(pack_not_stored(kind, why))


_NOTHING = Returned(None)


def _cut_short(
    run: ThreadRun | CoroutineRun | None, call: Call, delivery: Delivery, error: BaseException | None = None
) -> Outcome | None:
    """Return what it means that the function was ended from outside; None: it was not.

    What it returns after its time is dropped.  Where its lease was lost, the broker judges that.
    """
    if run is None or run.interrupted is None or (error is None and run.interrupted is LeaseLost):
        return None
    message = delivery.message
    timeout = message.timeout if isinstance(message, Message) else None
    return ended_as(run.interrupted, error, call.policy, timeout)


def _raised(error: BaseException, call: Call) -> Outcome:
    """Return what it means that the function has raised this of its own accord."""
    return outcome_of(error, call.policy, lease_lost=call.context.lease_lost)


def _not_awaited(value: Any, task: Task[..., Any]) -> Died:
    """No other try can change what kind of function it is."""
    what = (
        "a coroutine, which never ran" if iscoroutine(value) else f"{type(value).__qualname__}, which has to be awaited"
    )
    remedy = "await it in the function" if task.is_async else "write the function as async def, and await it there"
    if iscoroutine(value):
        value.close()
    why = f"{task.name} returned {what}: {remedy}"
    return Died(failure_from(TypeError(why)), why)


def _policy(task: Task[..., Any], max_attempts: int) -> Policy:
    return Policy(max_attempts, task.backoff, task.defaults.retry_on, task.defaults.give_up_on)


def _unreadable(raw: Raw) -> Outcome:
    if raw.version is not None:
        logger.warning("job %s is of version %d, newer than this worker reads; released", raw.id, raw.version)
        return Newer(raw.version)
    return Broken(raw.why)


def _undecoded(error: DecodeError) -> Outcome:
    return Broken(str(error)) if error.version is None else Newer(error.version)
