"""What runs as a job's body: the task's function, inside of the app's middleware, with what the job carries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.app import App
from tenure.carry import set_again
from tenure.context import JobContext
from tenure.middleware import around_coroutine, around_function
from tenure.worker.opening import Opening, at_once

if TYPE_CHECKING:
    from tenure.worker.executor import Call
    from tenure.worker.loop import Loop

logger = logging.getLogger("tenure.worker")


class Body:
    """Calls the functions of one app's tasks, each inside of what the app puts around it.

    A call says first that it has `started`.  It sets context variables, so it needs a context of its own.  Like the
    function itself it returns a value, or a coroutine for a task that is one.
    """

    def __init__(self, app: App, started: Callable[[JobContext], None]) -> None:
        self._app = app
        self._started = started
        self._opening = Opening(app.overrides)

    def __call__(self, call: Call) -> Any:
        app = self._app
        if app.layers or app.subscribers or call.task.recipes or call.context.headers:
            return self._surrounded(call)
        return function_of(call)

    def close(self, loop: Loop | None) -> None:
        """Close what the jobs of this process had open; an error is logged."""
        try:
            closing = self._opening.close()
            if loop is None:
                at_once(closing)
            else:
                loop.call(closing)
        except BaseException:
            logger.exception("a dependency of this process could not be closed")

    def _surrounded(self, call: Call) -> Any:
        app = self._app
        self._started(call.context)
        set_again(call.context.headers, app.carried, app.enums)
        around = around_coroutine if call.task.is_async else around_function
        return around(app.layers, call.context, partial(self._function, call))

    def _function(self, call: Call) -> Any:
        recipes, is_async = call.task.recipes, call.task.is_async
        if not recipes:
            return function_of(call)
        made = self._opening.around(recipes, call.context, partial(_function_with, call), is_async=is_async)
        return made if is_async else at_once(made)


def function_of(call: Call) -> Any:
    """Call the task's function and nothing else."""
    if call.task.takes_context:
        return call.task.fn(call.context, *call.args, **call.kwargs)
    return call.task.fn(*call.args, **call.kwargs)


def _function_with(call: Call, opened: Mapping[str, Any]) -> Any:
    return function_of(call._replace(kwargs={**call.kwargs, **opened}))
