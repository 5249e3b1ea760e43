"""What runs as a job's body: the task's function, inside of the app's middleware."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.hooks import Hooks
from tenure.middleware import around_coroutine, around_function

if TYPE_CHECKING:
    from tenure.worker.executor import Call


class Body:
    """Calls the functions of one app's tasks, each inside of what the app puts around it.

    Like the function itself, a call returns a value, or a coroutine for a task that is one.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def __call__(self, call: Call) -> Any:
        layers = self._hooks.layers
        if not layers:
            return function_of(call)
        around = around_coroutine if call.task.is_async else around_function
        return around(layers, call.context, partial(function_of, call))


def function_of(call: Call) -> Any:
    """Call the task's function and nothing else."""
    if call.task.takes_context:
        return call.task.fn(call.context, *call.args, **call.kwargs)
    return call.task.fn(*call.args, **call.kwargs)
