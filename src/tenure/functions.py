"""What can be told from a function before it becomes a task: whether it can run, how, and what its callers give it."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from tenure.context import JobContext
from tenure.depends import Dependency
from tenure.errors import TaskDefinitionError
from tenure.names import shown

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLACED = (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
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


def dependencies_of(function: Callable[..., Any]) -> dict[str, Dependency]:
    """Return the parameters that a worker fills by a factory; raises TaskDefinitionError for one that it cannot fill.

    They are filled by name, so each has to come after those that callers give by position.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some callables of C have no signature
        return {}
    declared = {one.name: found for one in parameters if (found := _declared(one, function)) is not None}
    for place, one in enumerate(parameters):
        later = [two.name for two in parameters[place + 1 :] if two.kind in _PLACED and two.name not in declared]
        if one.name in declared and (one.kind not in _NAMED or (later and one.kind in _PLACED)):
            raise TaskDefinitionError(
                f"{getattr(function, '__qualname__', function)}: the parameter {one.name} is filled by a worker, by "
                f"its name{f', and {later[0]} comes after it' if later else ''}; put it last, or behind a *"
            )
    return declared


def _declared(parameter: inspect.Parameter, function: Callable[..., Any]) -> Dependency | None:
    """Return what a parameter's default says, else what is within its `Annotated`, also by another name for that."""
    if isinstance(parameter.default, Dependency):
        return parameter.default
    hint = parameter.annotation
    if isinstance(hint, str):
        hint = _evaluated(hint, function)
    hint = getattr(hint, "__value__", hint)
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    return next((one for one in typing.get_args(hint)[1:] if isinstance(one, Dependency)), None)


def callers_signature(function: Callable[..., Any]) -> tuple[bool, inspect.Signature]:
    """Return whether the first parameter is annotated JobContext, and the signature that callers see.

    It is without that parameter, and without those that a worker fills.  Raises TaskDefinitionError where another
    parameter is annotated JobContext, or one with more than that class alone.
    """
    filled = dependencies_of(function)
    signature = inspect.signature(function)
    signature = signature.replace(parameters=[one for one in signature.parameters.values() if one.name not in filled])
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
    while isinstance(function, functools.partial):
        function = function.func
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
