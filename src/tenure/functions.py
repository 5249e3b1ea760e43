"""What can be told from a function before it becomes a task: whether it can run, how, and what its callers give it."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from tenure.context import JobContext
from tenure.errors import TaskDefinitionError
from tenure.names import shown

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONTEXT_WITHIN = re.compile(r"\bJobContext\b")


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

    Raises TaskDefinitionError where another parameter is annotated so, or one with more than that class alone.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    annotations = [_annotation(function, place, parameter) for place, parameter in enumerate(parameters)]
    for parameter, annotation in zip(parameters, annotations, strict=True):
        if _is_more_than_context(annotation, function):
            raise TaskDefinitionError(
                f"{getattr(function, '__qualname__', function)}: the parameter {parameter.name} is annotated "
                f"{shown(annotation)}; a worker gives a context to a first parameter that is annotated JobContext "
                "alone: def f(ctx: JobContext, ...)"
            )
    places = [place for place, annotation in enumerate(annotations) if _is_context(annotation)]
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


def _annotation(function: Callable[..., Any], place: int, parameter: inspect.Parameter) -> object:
    annotation = parameter.annotation
    # A first parameter's class may have been imported under another name; of the others the name has to do.
    if isinstance(annotation, str) and (place == 0 or "JobContext" in annotation):
        return _evaluated(annotation, function)
    return annotation


def _evaluated(text: str, function: Callable[..., Any]) -> object:
    """Return what the text of an annotation means; the text where a name in it is there for type checkers only."""
    try:
        return eval(text, getattr(inspect.unwrap(function), "__globals__", {}))  # noqa: S307  (of the user's module)
    except Exception:  # noqa: BLE001  (a name that is not there, or anything else that a module may do)
        return text


def _is_context(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.strip().rpartition(".")[2] == "JobContext"
    return annotation is JobContext


def _is_more_than_context(annotation: object, function: Callable[..., Any]) -> bool:
    """Whether a JobContext is somewhere within it: Optional, a union, Annotated, a list of them."""
    if _is_context(annotation):
        return False
    if isinstance(annotation, str):
        return _CONTEXT_WITHIN.search(annotation) is not None
    return any(_is_context(part) for part in _parts(annotation, function))


def _parts(annotation: object, function: Callable[..., Any]) -> Iterator[object]:
    for part in typing.get_args(annotation):
        yield _evaluated(part.__forward_arg__, function) if isinstance(part, typing.ForwardRef) else part
        yield from _parts(part, function)
