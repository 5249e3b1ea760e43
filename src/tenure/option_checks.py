"""Checks of the options that say what becomes of a job that fails."""

from __future__ import annotations

import builtins
import inspect

from tenure.errors import ConfigError, JobControl
from tenure.names import did_you_mean, shown
from tenure.outcome import DeadHook


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
