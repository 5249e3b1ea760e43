"""The event loop of a worker process: one, in a thread of its own, for all its coroutines as long as it lives."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeVar

logger = logging.getLogger("tenure.worker")

T = TypeVar("T")

LAST_WHILE = 1.0
"""Seconds that what a task has left running in the loop gets to end, once it is cancelled."""


class Start(NamedTuple):
    """A coroutine to be run; `ended` is called in the loop once it has ended, however it did.

    One that is cancelled before its first step is never entered, so it cannot tell of its end by itself.
    """

    coroutine: Coroutine[Any, Any, object]
    ended: Callable[[], object]


class Loop:
    """Runs coroutines side by side in one thread; nothing that they raise ends it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        self._running: set[asyncio.Task[Any]] = set()
        self._finished: threading.Event | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-loop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def spawn(self, starts: Sequence[Start]) -> None:
        """Start coroutines that handle their own errors, each with a context of its own; from any thread."""
        self._loop.call_soon_threadsafe(self._spawn, starts, context=Context())

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end and return its value or raise its error; not from the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def cancel(self) -> None:
        """Cancel the coroutines that `spawn` started; from any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def finish(self) -> None:
        """Return when all that `spawn` started has ended; nothing may be spawned meanwhile."""
        # No coroutine of the loop: a job that cancels all there is would cancel it too.
        finished = threading.Event()
        self._loop.call_soon_threadsafe(self._tell_when_finished, finished)
        finished.wait()

    def stop(self) -> None:
        """End the thread; what tasks have left running is cancelled and gets a second to end."""
        try:
            with suppress(CancelledError):  # what is left may itself cancel all there is
                self.call(self._end_what_is_left())
        finally:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopped:
            try:
                self._loop.run_forever()
            except BaseException:
                # SystemExit in a task that a job has made comes through; it concerns nobody else.
                logger.exception("an error came through to the event loop, which goes on")

    def _spawn(self, starts: Sequence[Start]) -> None:
        for start in starts:
            task = self._loop.create_task(start.coroutine, context=Context())
            self._running.add(task)  # the loop itself keeps no hold of what it runs
            task.add_done_callback(partial(self._ended, start.ended))

    def _ended(self, ended: Callable[[], object], task: asyncio.Task[Any]) -> None:
        try:
            ended()
        finally:
            self._running.discard(task)
            if self._finished is not None:
                self._tell_when_finished(self._finished)

    def _tell_when_finished(self, finished: threading.Event) -> None:
        self._finished = finished
        if not self._running:
            finished.set()

    def _cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel("the worker is leaving")

    async def _end_what_is_left(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_WHILE)
        await self._loop.shutdown_asyncgens()
