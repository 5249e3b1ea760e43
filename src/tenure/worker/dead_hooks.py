"""Calls the `on_dead` hooks of jobs that this worker was told are dead, beside the work and never in its way."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from tenure import codec
from tenure.app import App
from tenure.errors import DecodeError
from tenure.message import Delivery, Message, Settlement
from tenure.outcome import DeadJob, Failure

logger = logging.getLogger("tenure.worker")

MAX_WAITING = 1000
"""Dead jobs that wait for their hooks; when hooks are slower than jobs die, the rest is logged and not called."""


class DeadHooks:
    """Calls an app's hooks one after the other in one thread, which is started for the first dead job that has any."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._waiting: deque[tuple[Delivery, Settlement]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, delivery: Delivery, settlement: Settlement) -> None:
        """Have the hooks called for a job of which the broker has said that it is dead; returns at once."""
        if not self._app.dead_hooks(delivery.message.task):
            return
        with self._changed:
            if len(self._waiting) >= MAX_WAITING or self._closed:
                logger.error("on_dead is not called for job %s: %s", delivery.message.id, self._why_not())
                return
            self._waiting.append((delivery, settlement))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tenure-on-dead", daemon=True)
                thread.start()  # it may fail, and is tried again for the next dead job
                self._thread = thread
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Let the hooks of all that waits be called, for at most so many seconds."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is None:
            return
        thread.join(seconds)
        if thread.is_alive():
            logger.error("an on_dead hook still runs, and %d jobs wait for theirs; they are left", len(self._waiting))

    def _why_not(self) -> str:
        return "the worker is leaving" if self._closed else f"{MAX_WAITING} jobs wait for their hooks already"

    def _run(self) -> None:
        while (dead := self._next()) is not None:
            delivery, settlement = dead
            call_dead_hooks(self._app, delivery, settlement)
            del dead, delivery, settlement  # nothing of a job is kept until the next one dies

    def _next(self) -> tuple[Delivery, Settlement] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None


def call_dead_hooks(app: App, delivery: Delivery, settlement: Settlement) -> None:
    """Call each hook with the dead job and its last error; what one raises is logged and stops no other."""
    job, failure = _dead_job(app, delivery, settlement), _failure(settlement)
    for hook in app.dead_hooks(job.task):
        try:
            hook(job, failure)
        except BaseException:
            logger.exception("an on_dead hook of %s failed for job %s; it is not called again", job.task, job.id)


def _dead_job(app: App, delivery: Delivery, settlement: Settlement) -> DeadJob:
    message = delivery.message
    args, kwargs = _call(app, message) if isinstance(message, Message) else ((), {})
    key = message.key if isinstance(message, Message) else None
    return DeadJob(
        id=message.id,
        key=message.id if key is None else key,
        task=message.task,
        queue=message.queue,
        attempt=delivery.attempt,
        losses=delivery.losses,
        fence=delivery.fence,
        reason=settlement.reason,
        args=args,
        kwargs=kwargs,
    )


def _call(app: App, message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
    task = app.tasks.get(message.task)
    try:
        return ((), {}) if task is None else task.unpack(message)
    except BaseException:  # noqa: BLE001  (they may be why it is dead; a declared class may raise anything)
        return (), {}


def _failure(settlement: Settlement) -> Failure:
    try:
        return codec.unpack_failure(settlement.error)
    except DecodeError:  # it was above the broker's limit and left out
        return Failure("", settlement.reason)
