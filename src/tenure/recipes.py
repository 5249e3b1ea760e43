"""How the parameters are made that a worker fills, worked out once, when a task is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenure.depends import Dependency, Per
from tenure.errors import TaskDefinitionError
from tenure.functions import callers_signature, dependencies_of, is_coroutine_function

Kind = Literal["function", "generator", "coroutine", "async generator"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One factory: what kind of function it is, how long its value is used, and what has to be made before.

    `is_async`: it, or something that it needs, has to be awaited.
    """

    factory: Callable[..., Any]
    per: Per
    kind: Kind
    takes_context: bool
    needs: Mapping[str, Recipe]
    is_async: bool


def recipes_of(function: Callable[..., Any], name: str) -> Mapping[str, Recipe]:
    """Return how each parameter of a task's function is made; raises TaskDefinitionError for one that cannot be."""
    found = {word: recipe_of(one) for word, one in dependencies_of(function).items()}
    for word, recipe in found.items():
        if recipe.is_async and not is_coroutine_function(function):
            raise TaskDefinitionError(
                f"{name} is a plain function, and its parameter {word} has to be awaited ({_name(recipe.factory)}); "
                "write the task as async def, or the factory as a plain function"
            )
    return found


def recipe_of(dependency: Dependency, above: tuple[Callable[..., Any], ...] = ()) -> Recipe:
    """Work out one dependency and what it needs itself; `above` are the factories that need it."""
    factory, per = dependency.factory, dependency.per
    if factory in above:
        raise TaskDefinitionError(f"Depends: {' needs '.join(map(_name, (*above, factory)))}, which comes to no end")
    takes_context = _checked_context(factory)
    needs = {word: recipe_of(one, (*above, factory)) for word, one in dependencies_of(factory).items()}
    if per == "process" and (takes_context or any(one.per == "job" for one in needs.values())):
        raise TaskDefinitionError(
            f'Depends({_name(factory)}, per="process") needs something of one job (a JobContext, or what is made per '
            'job), but its value is used by many; leave per="process" out, or make what it needs per process as well'
        )
    kind = _kind_of(factory)
    is_async = kind in ("coroutine", "async generator") or any(one.is_async for one in needs.values())
    return Recipe(factory, per, kind, takes_context, needs, is_async)


def _checked_context(factory: Callable[..., Any]) -> bool:
    """Return whether a factory takes a JobContext; raises TaskDefinitionError if it needs anything else."""
    try:
        takes_context, signature = callers_signature(factory)
        signature.bind()
    except TypeError as error:
        raise TaskDefinitionError(
            f"Depends({_name(factory)}): {error}; a worker gives it a JobContext as its first parameter and what "
            "Depends says, and nothing else"
        ) from None
    except ValueError:
        return False  # some callables of C have no signature: the first call will tell
    return takes_context


def _kind_of(factory: Callable[..., Any]) -> Kind:
    if inspect.isasyncgenfunction(factory):
        return "async generator"
    if inspect.isgeneratorfunction(factory):
        return "generator"
    return "coroutine" if is_coroutine_function(factory) else "function"


def _name(factory: Callable[..., Any]) -> str:
    return getattr(factory, "__qualname__", repr(factory))
