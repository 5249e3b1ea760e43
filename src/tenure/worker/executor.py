"""Turns a delivery into an outcome, in small steps: find the task, read the arguments, call, pack the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from tenure.codec import pack_value, unpack_call
from tenure.context import JobContext, enter
from tenure.errors import DecodeError, NotSerializable
from tenure.message import Delivery, Message, Raw
from tenure.outcome import Broken, Newer, Outcome, Returned, UnknownTask
from tenure.settle import Policy, outcome_of
from tenure.task import Task
from tenure.worker.table import Lease

logger = logging.getLogger("tenure.worker")


class Executor:
    """Runs deliveries; `boot` is the boot clock and `max_result` the broker's limit for a body in bytes.

    Whatever the function raises, SystemExit and KeyboardInterrupt included, is an outcome and goes no further.
    """

    def __init__(self, tasks: Mapping[str, Task[..., Any]], boot: Callable[[], float], max_result: int) -> None:
        self._tasks = tasks
        self._boot = boot
        self._max_result = max_result

    def execute(self, delivery: Delivery, lease: Lease) -> tuple[Outcome, Policy]:
        """Run one delivery; returns what it came to, and what its task and message allow next."""
        message = delivery.message
        if type(message) is not Message:
            return _unreadable(message), Policy()  # type: ignore[arg-type]
        task = self._tasks.get(message.task)
        if task is None:
            logger.warning("no task %s here; job %s is released for another worker", message.task, message.id)
            return UnknownTask(message.task), Policy(message.max_attempts)
        own = task.defaults
        policy = Policy(message.max_attempts, own.backoff, own.retry_on, own.give_up_on)
        try:
            args, kwargs = unpack_call(message.args)
            task.check(args, kwargs)
        except DecodeError as error:
            return _undecoded(error), policy
        except TypeError as error:  # the function has changed since the call: no try will make them fit
            return Broken(f"bad arguments: {error}"), policy
        context = self._context(message, delivery, lease)
        if logger.isEnabledFor(logging.INFO):
            logger.info("start %s %s attempt %d", message.task, message.id, delivery.attempt)
        # A context of its own: what one job sets there, another must not find.
        return Context().run(self._call, task, context, policy, args, kwargs), policy

    def _context(self, message: Message, delivery: Delivery, lease: Lease) -> JobContext:
        return JobContext(
            message.id,
            message.id if message.key is None else message.key,
            message.queue,
            message.task,
            delivery.attempt,
            delivery.fence,
            delivery.losses,
            lease.deadline,
            self._boot,
        )

    def _call(
        self,
        task: Task[..., Any],
        context: JobContext,
        policy: Policy,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Outcome:
        enter(context)
        try:
            value = task.fn(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  (SystemExit of a task is no reason to end the worker)
            return outcome_of(error, policy)
        return Returned(None if value is None else self._packed(value, context))

    def _packed(self, value: Any, context: JobContext) -> bytes | None:
        """Pack a result; one that cannot be kept is left out, for the work itself is done."""
        try:
            data = pack_value(value, "result")
        except NotSerializable as error:
            logger.warning("the result of %s %s is not kept: %s", context.task, context.id, error)
            return None
        except BaseException as error:  # noqa: BLE001  (the value's own code may raise anything)
            logger.warning("the result of %s %s is not kept: %s", context.task, context.id, type(error).__name__)
            return None
        if len(data) > self._max_result:
            sizes = (len(data), self._max_result)
            logger.warning("the result of %s %s is not kept: %d bytes, limit %d", context.task, context.id, *sizes)
            return None
        return data


def _unreadable(raw: Raw) -> Outcome:
    if raw.version is not None:
        logger.warning("job %s is of version %d, newer than this worker reads; released", raw.id, raw.version)
        return Newer(raw.version)
    return Broken(raw.why)


def _undecoded(error: DecodeError) -> Outcome:
    return Broken(str(error)) if error.version is None else Newer(error.version)
