"""What `@app.task` makes of a function: a task, typed as its callers see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, final, overload

from tenure.context import JobContext
from tenure.errors import ConfigError, TaskDefinitionError
from tenure.functions import callers_signature, is_coroutine_function, refuse_what_cannot_run
from tenure.names import checked, task_name
from tenure.task import P, R, Task
from tenure.task_options import TaskOptions

if TYPE_CHECKING:
    from tenure.app import App


Awaited = Coroutine[Any, Any, R]
"""What a call of an `async def` returns.  (Which overload is meant where two fit is what their order says.)"""


class PlainTask(Task[P, R]):
    """A task of a plain function; called, it runs the function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncTask(Task[P, R]):
    """A task of an `async def`; called, it returns the coroutine."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class ContextTask(Task[P, R]):
    """A task of a function whose first parameter is a JobContext; a direct call has to give one."""

    if TYPE_CHECKING:

        def __call__(self, context: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncContextTask(Task[P, R]):
    """A task of an `async def` whose first parameter is a JobContext."""

    if TYPE_CHECKING:

        def __call__(self, context: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


@final
class Anything:
    """Only for type checkers: a first parameter that takes this takes anything, so it is no JobContext."""


class Define(Protocol):
    """What `@app.task(...)` with options returns: it makes a task of the function below."""

    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], Awaited[R]], /) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], R], /) -> PlainTask[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], Awaited[R]], /) -> AsyncContextTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaited[R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


_KINDS: Mapping[tuple[bool, bool], type[Task[..., Any]]] = {
    (False, False): PlainTask,
    (False, True): ContextTask,
    (True, False): AsyncTask,
    (True, True): AsyncContextTask,
}


def define(app: App, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[..., Any]:
    """Make a task of a function; raises TaskDefinitionError saying what to write instead."""
    if isinstance(function, Task):
        raise TaskDefinitionError(f"{function!r} is a task already; decorate the plain function")
    refuse_what_cannot_run(function)
    kind = _KINDS[is_coroutine_function(function), callers_signature(function)[0]]
    if name is None:
        return kind(app, function, task_name(function), options)
    try:
        return kind(app, function, checked("task name", name), options)
    except ConfigError as error:
        raise TaskDefinitionError(f"@app.task: {error}") from None
