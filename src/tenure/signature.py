"""One call of a task that has not been sent yet, and the options that a call may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from tenure.config import seconds, whole
from tenure.errors import ConfigError
from tenure.job import Job
from tenure.message import When
from tenure.names import checked, shown, unknown_option

if TYPE_CHECKING:
    from tenure.task import Task

R_co = TypeVar("R_co", covariant=True)


class CallWords(TypedDict, total=False):
    """The options of a call as a user writes them; see `Task.options`."""

    queue: str | None
    key: str | None
    delay: float | timedelta | None
    run_at: datetime | None
    expires: float | timedelta | datetime | None
    priority: int | None
    visibility_timeout: float | timedelta | None
    timeout: float | timedelta | None
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a call says beside its arguments, checked; None: the task's own.  The two timeouts are seconds."""

    queue: str | None = None
    key: str | None = None
    run_at: When | None = None
    expires: When | None = None
    priority: int | None = None
    visibility_timeout: float | None = None
    timeout: float | None = None
    max_attempts: int | None = None

    def then(self, later: CallOptions) -> CallOptions:
        """Return these options with those that `later` gives in their place."""
        merged = {name: getattr(self, name) for name in _FIELDS}
        merged.update((name, value) for name in _FIELDS if (value := getattr(later, name)) is not None)
        return _startable(CallOptions(**merged))


_FIELDS = tuple(item.name for item in fields(CallOptions))
NO_OPTIONS = CallOptions()


@dataclass(frozen=True, slots=True)
class Signature(Generic[R_co]):
    """A task with its arguments and options, made by `task.s(...)`; sent by `delay()` or `app.add_many([...])`."""

    task: Task[..., R_co]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    call_options: CallOptions = NO_OPTIONS

    def options(self, **words: Unpack[CallWords]) -> Signature[R_co]:
        """Return the signature with these options as well; see `Task.options`."""
        return Signature(self.task, self.args, self.kwargs, self.call_options.then(call_options(words)))

    def delay(self) -> Job[R_co]:
        """Add the job; see `Task.delay`."""
        return self.task.send(self)

    async def adelay(self) -> Job[R_co]:
        """Add the job from a coroutine; see `Task.adelay`."""
        return await self.task.asend(self)


def call_options(words: CallWords) -> CallOptions:
    """Check the options of a call; raises ConfigError naming the value, its limit and the way out."""
    for word in words:
        if word not in _WORDS:
            raise ConfigError(unknown_option("options()", word, _WORDS))
    given: dict[str, Any] = {word: value for word, value in words.items() if value is not None}
    if "delay" in given and "run_at" in given:
        raise ConfigError(
            f"delay={given['delay']!r} and run_at={given['run_at']!r} both say when to start; give one of them"
        )
    checked_: dict[str, Any] = {_FIELD_OF.get(word, word): _CHECKS[word](value) for word, value in given.items()}
    return _startable(CallOptions(**checked_))


def _startable(options: CallOptions) -> CallOptions:
    """Return the options unless the latest start comes before the earliest one."""
    start, end = options.run_at, options.expires
    if start is None or end is None or start.relative != end.relative or end.seconds >= start.seconds:
        return options
    given = f"delay={start.seconds:g} and expires={end.seconds:g}" if start.relative else "run_at= and expires="
    raise ConfigError(f"{given} leave no time to start: expires= is the latest start; give one after the earliest")


def _delay(value: object) -> When:
    if isinstance(value, datetime):
        raise ConfigError(f"delay={value!r} is a datetime; give it as run_at=, or give seconds or a timedelta")
    return When(seconds("delay", value), relative=True)


def _run_at(value: object) -> When:
    if not isinstance(value, datetime):
        raise ConfigError(f"run_at={shown(value)} is no datetime; give an aware datetime, or seconds as delay=")
    return _moment("run_at", value)


def _expires(value: object) -> When:
    if isinstance(value, datetime):
        return _moment("expires", value)
    return When(seconds("expires", value), relative=True)


def _moment(name: str, value: datetime) -> When:
    if value.utcoffset() is None:
        raise ConfigError(
            f"{name}={value!r} is a naive datetime, which names no moment; "
            "give it a time zone, for example datetime.now(timezone.utc)"
        )
    # What lies before the epoch is past in any case, and the wire has no negative times.
    return When(max(0.0, value.timestamp()))


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "queue": partial(checked, "queue"),
    "key": partial(checked, "key"),
    "delay": _delay,
    "run_at": _run_at,
    "expires": _expires,
    "priority": partial(whole, "priority"),
    "visibility_timeout": partial(seconds, "visibility_timeout"),
    "timeout": partial(seconds, "timeout"),
    "max_attempts": partial(whole, "max_attempts"),
}
_WORDS = tuple(_CHECKS)
_FIELD_OF = {"delay": "run_at"}
