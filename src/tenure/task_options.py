"""The options of a task: what they are, and how they are checked where the task is defined."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args

from tenure.config import seconds, whole
from tenure.errors import ConfigError, JobControl, TaskDefinitionError
from tenure.message import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, DEFAULT_PRIORITY
from tenure.names import checked, did_you_mean, shown, unknown_option
from tenure.outcome import DeadHook
from tenure.retry import DEFAULT_BACKOFF, Backoff

OnLeaseLost = Literal["raise", "finish"]
"""What a task does whose lease is lost: end by an exception, or run to its end."""


class TaskWords(TypedDict, total=False):
    """The options of a task as a user writes them; see `App.task`."""

    name: str | None
    aliases: Sequence[str]
    queue: str | None
    key: Callable[..., str] | None
    priority: int
    max_attempts: int
    max_losses: int
    visibility_timeout: float | timedelta | None
    timeout: float | timedelta | None
    backoff: Backoff
    results: bool
    retry_on: type[BaseException] | Sequence[type[BaseException]] | None
    give_up_on: type[BaseException] | Sequence[type[BaseException]]
    on_dead: DeadHook | None
    on_lease_lost: OnLeaseLost
    check: bool


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task says about all its jobs, checked.  `visibility_timeout` and `timeout` are seconds; None: no own.

    `aliases`: other names under which its jobs may come.  `check`: whether arguments that do not fit the function's
    type hints are refused.
    """

    aliases: tuple[str, ...] = ()
    queue: str | None = None
    key: Callable[..., str] | None = None
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_losses: int = DEFAULT_MAX_LOSSES
    visibility_timeout: float | None = None
    timeout: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    results: bool = True
    retry_on: tuple[type[BaseException], ...] | None = None
    give_up_on: tuple[type[BaseException], ...] = ()
    on_dead: DeadHook | None = None
    on_lease_lost: OnLeaseLost = "raise"
    check: bool = True


def task_options(words: Mapping[str, object]) -> TaskOptions:
    """Check the options of a task, `name` left aside; raises TaskDefinitionError, also for one that there is not."""
    for word in words:
        if word not in _WORDS:
            raise TaskDefinitionError(unknown_option("@app.task", word, _WORDS))
    try:
        return TaskOptions(**{word: _CHECKS[word](value) for word, value in words.items() if word != "name"})
    except ConfigError as error:
        raise TaskDefinitionError(f"@app.task: {error}") from None


def _optional_seconds(name: str) -> Callable[[object], float | None]:
    return lambda value: None if value is None else seconds(name, value)


def _checked_aliases(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"aliases={shown(value)} has to be a list of names, such as aliases=['shop.old_name']")
    return tuple(dict.fromkeys(checked("alias", name) for name in value))


def _checked_key(value: object) -> object:
    if value is not None and not callable(value):
        raise ConfigError(
            f"key={shown(value)} has to be a function of the task's parameters; "
            "a fixed key for one call is task.options(key=...)"
        )
    return value


def _checked_backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise ConfigError(f"backoff={shown(value)} has to be a Backoff, for example Backoff(base=2, cap=600)")
    return value


def _checked_results(value: object) -> object:
    if not isinstance(value, bool):
        raise ConfigError(f"results={shown(value)} has to be True or False")
    return value


def _checked_check(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"check={shown(value)} has to be True (arguments have to fit the type hints) or False")
    return value


def _checked_on_lease_lost(value: object) -> object:
    if value not in get_args(OnLeaseLost):
        raise ConfigError(
            f'on_lease_lost={shown(value)} has to be "raise" (the task is ended) or "finish" (it runs to its end)'
        )
    return value


def exception_classes(name: str, value: object) -> tuple[type[BaseException], ...]:
    """Return one exception class, or several, as a tuple."""
    items = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    for item in items:
        if not isinstance(item, type) or not issubclass(item, BaseException):
            raise ConfigError(
                f"{name}= takes exception classes, such as {name}=(ConnectionError, TimeoutError), "
                f"not {shown(item)}{_meant(item)}"
            )
        if issubclass(item, JobControl):
            raise ConfigError(f"{name}= takes no {item.__name__}: what a task asks for by raising it is always done")
    return items


def _meant(item: object) -> str:
    """Return a hint for what was written in place of an exception class."""
    if isinstance(item, BaseException):
        return f"; write the class alone: {type(item).__name__}"
    if isinstance(item, str):
        known = [name for name, value in vars(builtins).items() if isinstance(value, type)]
        return f"; write the class, not its name.{did_you_mean(item, known)}"
    return ""


def dead_hook(value: object) -> DeadHook:
    """Return an `on_dead` hook if it can be called as one; raises ConfigError."""
    rule = "on_dead= takes a plain function of the dead job and its last error: def hook(job: DeadJob, error: Failure)"
    if not callable(value) or isinstance(value, type) or inspect.iscoroutinefunction(value):
        raise ConfigError(f"{rule}; {shown(value)} is none")
    try:
        inspect.signature(value).bind(None, None)
    except TypeError as error:
        raise ConfigError(f"{rule}; {shown(value)} cannot be called so: {error}") from None
    except ValueError:
        pass  # some callables of C have no signature: the first call will tell
    return value


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "aliases": _checked_aliases,
    "queue": lambda value: None if value is None else checked("queue", value),
    "key": _checked_key,
    "priority": functools.partial(whole, "priority"),
    "max_attempts": functools.partial(whole, "max_attempts"),
    "max_losses": functools.partial(whole, "max_losses"),
    "visibility_timeout": _optional_seconds("visibility_timeout"),
    "timeout": _optional_seconds("timeout"),
    "backoff": _checked_backoff,
    "results": _checked_results,
    "check": _checked_check,
    "retry_on": lambda value: None if value is None else exception_classes("retry_on", value),
    "give_up_on": functools.partial(exception_classes, "give_up_on"),
    "on_dead": lambda value: None if value is None else dead_hook(value),
    "on_lease_lost": _checked_on_lease_lost,
}
_WORDS = ("name", *_CHECKS)
