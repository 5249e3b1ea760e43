"""A `memory://` that remembers what was added, and the question whether a certain call was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.app import App
from tenure.broker import Added
from tenure.brokers.memory import MemoryBroker
from tenure.errors import TenureError
from tenure.functions import callers_signature
from tenure.message import Message
from tenure.signature import NO_OPTIONS
from tenure.task import Task
from tenure.testing.clock import MovableClock

_MAX_SHOWN = 20


class RecordingBroker(MemoryBroker):
    """Keeps the message of every job that was made; the app may close it, which ends nothing before `end`."""

    def __init__(self, clock: MovableClock) -> None:
        super().__init__(clock=clock)
        self.messages: list[Message] = []
        clock.watch(self.server.look)

    def add(self, messages: Sequence[Message]) -> list[Added]:
        """Store the messages; see `Broker.add`."""
        answers = super().add(messages)
        self.messages += [message for message, added in zip(messages, answers, strict=True) if added.created]
        return answers

    def queues(self) -> set[str]:
        """Return the queues that jobs were added to."""
        return {message.queue for message in list(self.messages)}

    def close(self) -> None:
        """Do nothing: an app that closes its broker when it shuts down is used on by the next test or fixture."""

    def end(self) -> None:
        """Let go of all jobs."""
        super().close()


@dataclass(frozen=True)
class AddedCall:
    """One job that was added: which task, with which arguments as a worker will get them."""

    id: str
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    message: Message = field(repr=False)

    def __str__(self) -> str:
        return call_text(self.task, self.args, self.kwargs)


def added_calls(app: App, messages: Sequence[Message], task: Task[..., Any] | None) -> list[AddedCall]:
    """Return the jobs among these messages, in order; of one task, or of all that the app has."""
    found = []
    for message in list(messages):
        one = app.tasks.get(message.task)
        if one is not None and (task is None or message.task == task.name):
            args, kwargs = one.unpack(message)
            found.append(AddedCall(message.id, message.task, args, kwargs, message))
    return found


def matching(task: Task[..., Any], calls: Sequence[AddedCall], args: Sequence[Any], kwargs: Any) -> list[AddedCall]:
    """Return the calls that are this one: the same call on the wire, or one with equal arguments.

    Equality lets `unittest.mock.ANY` and `pytest.approx` stand for an argument.  Raises TypeError where the task cannot
    be called so.
    """
    task.check(tuple(args), kwargs)
    print_ = _fingerprint(task, args, kwargs)
    wanted = _bound(task, args, kwargs)
    return [
        call
        for call in calls
        if call.message.fingerprint == print_ or _equal(_bound(task, call.args, call.kwargs), wanted)
    ]


def _fingerprint(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
    try:
        return task.message(tuple(args), kwargs, NO_OPTIONS).fingerprint
    except (TenureError, TypeError, ValueError):  # what stands for any value has no wire form
        return None


def _bound(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = callers_signature(task.fn)[1].bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _equal(one: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    # The wanted value on the left: it may be one that says itself what it is equal to.
    return one.keys() == wanted.keys() and all(bool(value == one[name]) for name, value in wanted.items())


def not_added(
    wanted: str, found: int, count: int | None, same: Sequence[AddedCall], others: Sequence[AddedCall]
) -> str:
    """Return the text of a failed `assert_added`, with what was added instead."""
    number = {None: "was not added", 0: f"was added {_times(found)}, not expected at all"}.get(
        count, f"was added {_times(found)}, expected {count}"
    )
    lines = [f"{wanted} {number}"]
    if same:
        lines += ["this task was added with:", *_listed(same)]
    elif others:
        lines += ["this task was not added at all; others were:", *_listed(others)]
    else:
        lines.append("no job was added at all")
    return "\n".join(lines)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _listed(calls: Sequence[AddedCall]) -> list[str]:
    lines = [f"  {call}" for call in calls[:_MAX_SHOWN]]
    return lines if len(calls) <= _MAX_SHOWN else [*lines, f"  and {len(calls) - _MAX_SHOWN} more"]


def call_text(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call as it is written in code."""
    words = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"{task}({', '.join(words)})"
