"""Runs the hooks that an app has for the start and the end of each worker process."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenure.functions import is_coroutine_function

if TYPE_CHECKING:
    from tenure.worker.loop import Loop

logger = logging.getLogger("tenure.worker")

Hook = Callable[[], object]


class StartHookError(RuntimeError):
    """A hook for the start of a worker process has failed; its cause is what it raised."""


def need_loop(hooks: Sequence[Hook]) -> bool:
    """Whether one of them has to be awaited."""
    return any(is_coroutine_function(hook) for hook in hooks)


def run_start_hooks(hooks: Sequence[Hook], loop: Loop | None) -> None:
    """Call each in turn; raises StartHookError for the first that raises."""
    for hook in hooks:
        try:
            _call(hook, loop)
        except BaseException as error:
            raise StartHookError(f"the on_worker_start hook {_name(hook)} has failed") from error


def run_stop_hooks(hooks: Sequence[Hook], loop: Loop | None) -> None:
    """Call each, the last one first; what one raises is logged, and the others follow."""
    for hook in reversed(hooks):
        try:
            _call(hook, loop)
        except BaseException:
            logger.exception("the on_worker_stop hook %s has failed", _name(hook))


def _call(hook: Hook, loop: Loop | None) -> None:
    made = hook()
    if inspect.iscoroutine(made):
        if loop is None:
            made.close()
            raise TypeError(f"{_name(hook)} returned a coroutine, which never ran: write the hook as async def")
        loop.call(made)


def _name(hook: Hook) -> str:
    return f"{getattr(hook, '__module__', '?')}.{getattr(hook, '__qualname__', repr(hook))}"
