"""What can be told from a function before it becomes a task: whether it can run, how, and what its callers give it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tenure.context import JobContext
from tenure.errors import TaskDefinitionError
from tenure.names import shown

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def refuse_what_cannot_run(function: object) -> None:
    """Raise TaskDefinitionError for what a worker could not run, saying what to write instead."""
    if not callable(function) or isinstance(function, type):
        raise TaskDefinitionError(f"@app.task goes on a function, not on {shown(function)}")
    name = getattr(function, "__qualname__", repr(function))
    if _is_kind(inspect.isasyncgenfunction, function):
        raise TaskDefinitionError(
            f"{name} is an async generator function, of which a call runs nothing; return a list, or leave yield out"
        )
    if _is_kind(inspect.isgeneratorfunction, function):
        raise TaskDefinitionError(
            f"{name} is a generator function, of which a call runs nothing; return a list, or leave yield out"
        )


def is_coroutine_function(function: object) -> bool:
    """Whether a call of it returns a coroutine: an `async def`, or an object whose `__call__` is one."""
    return _is_kind(inspect.iscoroutinefunction, function)


def callers_signature(function: Callable[..., Any]) -> tuple[bool, inspect.Signature]:
    """Return whether the first parameter is annotated JobContext, and the signature without it.

    Raises TaskDefinitionError where another parameter is annotated so.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    places = [place for place, parameter in enumerate(parameters) if _is_context(function, place, parameter)]
    if not places:
        return False, signature
    if places != [0] or parameters[0].kind not in _POSITIONAL:
        raise TaskDefinitionError(
            f"{getattr(function, '__qualname__', function)}: the parameter {parameters[places[-1]].name} is a "
            "JobContext, which has to be the first parameter, and one only: def f(ctx: JobContext, ...)"
        )
    return True, signature.replace(parameters=parameters[1:])


def _is_kind(asked: Callable[[object], bool], function: object) -> bool:
    return asked(function) or asked(type(function).__dict__.get("__call__"))


def _is_context(function: Callable[..., Any], place: int, parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    # A first parameter's class may have been imported under another name; of the others the name has to do.
    if isinstance(annotation, str) and (place == 0 or "JobContext" in annotation):
        names = getattr(inspect.unwrap(function), "__globals__", {})
        try:
            annotation = eval(annotation, names)  # noqa: S307  (the text of the user's own module)
        except Exception:  # noqa: BLE001  (a name that exists for type checkers only, for instance)
            return str(annotation).rpartition(".")[2] == "JobContext"
    return annotation is JobContext
