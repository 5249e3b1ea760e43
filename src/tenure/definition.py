"""What `@app.task` makes of a function: a task, typed as its callers see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, Unpack, final, overload

from tenure.context import JobContext
from tenure.errors import ConfigError, TaskDefinitionError
from tenure.functions import callers_signature, is_coroutine_function, refuse_what_cannot_run
from tenure.names import checked, task_name
from tenure.task import P, R, Task
from tenure.task_options import TaskOptions, TaskWords, task_options

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

    # The ignored overlaps are meant: what returns an awaitable fits the plain form too, and the first that fits wins.
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


class TaskMaker(ABC):
    """What makes tasks of functions: an App, or a TaskGroup."""

    # The ignored overlaps are meant: what returns an awaitable fits the plain form too, and the first that fits wins.
    @overload
    def task(self, function: Callable[Concatenate[Anything, ...], Awaited[R]], /) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[Anything, ...], R], /) -> PlainTask[..., R]: ...
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], Awaited[R]], /) -> AsyncContextTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaited[R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, function: None = None, /, **words: Unpack[TaskWords]) -> Define: ...

    def task(self, function: Callable[..., Any] | None = None, /, **words: Unpack[TaskWords]) -> Any:
        """Make a task of the function below: `@app.task`, or `@app.task(queue="billing", ...)`.

        `name` (default: module.qualname), `aliases` (other names under which its jobs may come, as after a rename),
        `queue` (default: what the app's routes say, else `default`), `key` (a function of the task's parameters that
        returns the idempotency key), `priority` (0 to 9, 9 first), `max_attempts`, `max_losses`, `visibility_timeout`
        (seconds or timedelta), `timeout` (seconds or timedelta: how long an attempt may run, after which the function
        is ended by `TimeLimitExceeded`), `backoff` (a `Backoff`), `retry_on` and `give_up_on` (exception classes: only
        these are tried again, and these never are, whatever `retry_on` says), `on_dead` (a function of a `DeadJob` and
        a `Failure`, called when a job has failed for good; see `App.on_dead`), `on_lease_lost` ("raise": the function
        is ended by `LeaseLost` when another worker may hold its job; "finish": it is not), `results` (False: what the
        function returns is not kept), `check` (False: arguments need not fit the function's type hints).
        Raises TaskDefinitionError.
        """
        options = task_options(words)
        if function is not None:
            return self._defined(function, words.get("name"), options)
        return lambda function: self._defined(function, words.get("name"), options)

    @abstractmethod
    def _defined(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[..., Any]:
        """Make the task and keep it."""
