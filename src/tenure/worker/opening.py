"""Opens what jobs depend on, and closes it again: for one job, or for as long as a worker process lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from tenure.context import JobContext
from tenure.depends import Dependency
from tenure.recipes import Recipe, recipe_of

if TYPE_CHECKING:
    import asyncio

Overrides = Mapping[Callable[..., Any], Callable[..., Any]]
"""What stands in the place of some factories, as tests have it."""

Body = Callable[[Mapping[str, Any]], Any]
"""Calls a function with what was opened for it, by the names of its parameters."""

_NOT_OPEN = object()


class Opening:
    """What the jobs of one process depend on.

    All of it is written once, as coroutines: where nothing has to be awaited they never wait, so that `at_once` runs
    them in a slot's thread.
    """

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides
        self._values: dict[Callable[..., Any], Any] = {}
        self._locks: dict[Callable[..., Any], threading.Lock] = {}
        self._loop_locks: dict[Callable[..., Any], asyncio.Lock] = {}
        self._stack = AsyncExitStack()

    async def around(self, recipes: Mapping[str, Recipe], context: JobContext, body: Body, *, is_async: bool) -> Any:
        """Open what a job needs, call its body, and close what is the job's alone, the last one first.

        What the body raises is raised in the generators at their `yield`; one that swallows it changes nothing.
        """
        raised: BaseException | None = None
        stack: AsyncExitStack[bool] = AsyncExitStack()
        try:
            async with stack:
                try:
                    job = _Job(self, stack, context, is_async=is_async)
                    value = body({name: await job.open(recipe) for name, recipe in recipes.items()})
                    return await value if is_async else value
                except BaseException as error:
                    raised = error
                    raise
            assert raised is not None  # it was swallowed
            raise raised
        finally:
            raised = None  # its traceback has this frame: together they would stay for the garbage collector

    def in_place_of(self, recipe: Recipe) -> Recipe:
        """Return the recipe, or the one that a test has put in its place."""
        replacement = self._overrides.get(recipe.factory)
        return recipe if replacement is None else recipe_of(Dependency(replacement, recipe.per))

    async def of_process(self, recipe: Recipe) -> Any:
        """Return what is used by all jobs of the process, opened by the first one; an error leaves it to the next."""
        value = self._values.get(recipe.factory, _NOT_OPEN)
        if value is not _NOT_OPEN:
            return value
        if not recipe.is_async:
            with self._locks.setdefault(recipe.factory, threading.Lock()):
                return await self._open(recipe)
        from asyncio import Lock  # where there are coroutines, it is loaded

        async with self._loop_locks.setdefault(recipe.factory, Lock()):
            return await self._open(recipe)

    async def _open(self, recipe: Recipe) -> Any:
        value = self._values.get(recipe.factory, _NOT_OPEN)
        if value is _NOT_OPEN:
            needs = {name: await self.of_process(self.in_place_of(one)) for name, one in recipe.needs.items()}
            value = self._values[recipe.factory] = await opened(recipe, self._stack, (), needs)
        return value

    async def close(self) -> None:
        """Close what is the process's, the last one first; every one is closed, and then the last error raised."""
        self._values.clear()
        await self._stack.aclose()


class _Job:
    """What one execution has open; a factory that it needs twice is called once."""

    def __init__(self, process: Opening, stack: AsyncExitStack, context: JobContext, *, is_async: bool) -> None:
        self._process = process
        self._stack = stack
        self._context = context
        self._is_async = is_async
        self._values: dict[Callable[..., Any], Any] = {}

    async def open(self, recipe: Recipe) -> Any:
        recipe = self._process.in_place_of(recipe)
        if recipe.is_async and not self._is_async:
            raise TypeError(
                f"{self._context.task} is a plain function, and what stands in for a factory has to be awaited: "
                f"{recipe.factory!r}; override it with a plain function"
            )
        if recipe.per == "process":
            return await self._process.of_process(recipe)
        if recipe.factory not in self._values:
            needs = {name: await self.open(one) for name, one in recipe.needs.items()}
            args = (self._context,) if recipe.takes_context else ()
            self._values[recipe.factory] = await opened(recipe, self._stack, args, needs)
        return self._values[recipe.factory]


async def opened(recipe: Recipe, stack: AsyncExitStack, args: tuple[Any, ...], needs: Mapping[str, Any]) -> Any:
    """Call a factory; the rest of a generator is left to the stack."""
    match recipe.kind:
        case "generator":
            return stack.enter_context(contextmanager(recipe.factory)(*args, **needs))
        case "async generator":
            return await stack.enter_async_context(asynccontextmanager(recipe.factory)(*args, **needs))
        case "coroutine":
            return await recipe.factory(*args, **needs)
    return recipe.factory(*args, **needs)


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine comes to in which nothing has to be waited for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("something was awaited where there is no event loop")
