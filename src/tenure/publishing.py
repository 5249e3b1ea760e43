"""How an app adds jobs: its messages through the publishing middleware to the broker, and the answers to handles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.broker import Added
from tenure.errors import AddError, BrokerUnavailable, ConfigError
from tenure.events import Event, tell
from tenure.job import Job
from tenure.message import Message
from tenure.middleware import around_adding
from tenure.names import shown
from tenure.signature import Signature

if TYPE_CHECKING:
    from tenure.app import App

T = TypeVar("T")


def checked_call(task: str, args: object, kwargs: object) -> Mapping[str, Any]:
    """Return the named arguments of `app.send`; raises TypeError where either is not what holds arguments."""
    call = f"app.send({shown(task)}, "
    if isinstance(args, Mapping):
        raise TypeError(f"args={shown(args)} is a dict; named arguments come third: {call}(), {shown(args)})")
    # A text is a sequence too, of its letters: that is never meant.
    if isinstance(args, str | bytes | bytearray) or not isinstance(args, Sequence):
        raise TypeError(
            f"args={shown(args)} has to be a list or a tuple of arguments; a single one is written as "
            f"{call}({shown(args)},))"
        )
    if kwargs is None:
        return {}
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(
            f"kwargs={shown(kwargs)} has to be a dict from names to arguments, such as {call}(), {{'order_id': 42}})"
        )
    return kwargs


def add_one(app: App, message: Message) -> Job[Any]:
    """Add one message and return the handle of its job; raises as `Task.delay` does."""
    if app.publish_layers:
        return _add(app, [message], lambda sent, answers: _job_or_raise(app, sent[0], answers[0]))
    try:
        [answer] = app.broker.add([message])
    except BrokerUnavailable as error:
        error.adapt(lambda answers: _job_or_raise(app, message, answers[0]))
        raise
    return _job_or_raise(app, message, answer)


def add_many(app: App, signatures: Iterable[Signature[T]]) -> list[Job[T] | AddError]:
    """Add the jobs of signatures in one call of the broker; see `App.add_many`."""
    calls = list(signatures)
    for call in calls:
        _check_own(app, call)
    made = [_message_or_error(call) for call in calls]

    def merge(sent: Sequence[Message], answers: Sequence[Added]) -> list[Job[T] | AddError]:
        jobs = iter([_job_or_error(app, message, added) for message, added in zip(sent, answers, strict=True)])
        return [item if isinstance(item, AddError) else next(jobs) for item in made]

    return _add(app, [item for item in made if isinstance(item, Message)], merge)


def _add(app: App, messages: list[Message], convert: Callable[[Sequence[Message], Sequence[Added]], T]) -> T:
    """Add messages, and convert what was sent and the answers; `resend()` of an error returns the same."""
    sent: Sequence[Message] = messages

    def send(changed: Sequence[Message]) -> Sequence[Added]:
        nonlocal sent
        sent = changed
        return app.broker.add(changed)

    try:
        answers = around_adding(app.publish_layers, messages, send) if messages else []
    except BrokerUnavailable as error:
        error.adapt(lambda answers: convert(sent, answers))
        raise
    return convert(sent, answers)


def _check_own(app: App, call: object) -> None:
    if not isinstance(call, Signature):
        raise TypeError(f"add_many takes signatures, made by task.s(...), not {shown(call)}")
    if call.task.app is not app:
        raise ConfigError(
            f"task {call.task.name} belongs to {call.task.app!r}, not to {app!r}; add it with its own app"
        )


def _message_or_error(call: Signature[Any]) -> Message | AddError:
    try:
        return call.task.message(call.args, call.kwargs, call.call_options)
    except Exception as error:  # noqa: BLE001  (a key= function may raise anything, and others have to go on)
        refused = AddError(f"{call.task.name}: {error}", "")
        refused.__cause__ = error
        return refused


def _job_or_error(app: App, message: Message, added: Added) -> Job[Any] | AddError:
    error = added.error
    if error is None:
        key = message.key or added.id
        subscribers = app.subscribers.get("job.added") if added.created else None
        if subscribers:
            tell(subscribers, Event("job.added", time.time(), added.id, key, message.task, message.queue))
        return Job(added.id, key, message.queue, message.task, added.created, app)
    if isinstance(error, AddError):
        return error
    refused = AddError(f"{message.task}: {error}", message.id)
    refused.__cause__ = error
    return refused


def _job_or_raise(app: App, message: Message, added: Added) -> Job[Any]:
    job = _job_or_error(app, message, added)
    if isinstance(job, AddError):
        raise job
    return job
