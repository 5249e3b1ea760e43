"""What runs as a job's body: the task's function, inside of the app's middleware, with what the job carries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.app import App
from tenure.carry import set_again
from tenure.middleware import around_coroutine, around_function

if TYPE_CHECKING:
    from tenure.worker.executor import Call


class Body:
    """Calls the functions of one app's tasks, each inside of what the app puts around it.

    It sets context variables, so each call needs a context of its own.  Like the function itself, a call returns a
    value, or a coroutine for a task that is one.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, call: Call) -> Any:
        app = self._app
        if call.context.headers:
            set_again(call.context.headers, app.carried, app.enums)
        layers = app.layers
        if not layers:
            return function_of(call)
        around = around_coroutine if call.task.is_async else around_function
        return around(layers, call.context, partial(function_of, call))


def function_of(call: Call) -> Any:
    """Call the task's function and nothing else."""
    if call.task.takes_context:
        return call.task.fn(call.context, *call.args, **call.kwargs)
    return call.task.fn(*call.args, **call.kwargs)
