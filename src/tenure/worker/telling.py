"""Tells an app's subscribers what happens in a worker process, beside the work and never in its way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tenure.app import App
from tenure.broker import Settled
from tenure.clock import Clock
from tenure.context import JobContext
from tenure.events import Event, EventName, tell
from tenure.worker.counts import NAMES, counter_of
from tenure.worker.settler import Finished

logger = logging.getLogger("tenure.worker")

MAX_WAITING = 10_000
"""Events that wait for their subscribers; where these are slower than the work, the rest is counted and left."""

_WARN_PERIOD = 60.0
_NAMES: dict[str, EventName] = {
    "done": "job.done",
    "retried": "job.retried",
    "released": "job.released",
    "dead": "job.dead",
    "cancelled": "job.cancelled",
}


class Events:
    """Makes an event of what happens where somebody has subscribed to it, and hands it to `put`."""

    def __init__(self, app: App, worker: str, wall: Callable[[], float], put: Callable[[Event], None]) -> None:
        self._wanted = app.subscribers
        self._worker = worker
        self._wall = wall
        self._put = put

    def worker(self, name: EventName) -> None:
        """The process begins or ends its work."""
        self._tell(name)

    def started(self, job: JobContext) -> None:
        """A job's function is about to be called."""
        if "job.started" in self._wanted:
            words = {"job_id": job.id, "job_key": job.key, "task": job.task, "queue": job.queue}
            self._tell("job.started", attempt=job.attempt, **words)

    def answered(self, finished: Finished, answer: Settled) -> None:
        """The broker has said what became of a hand-out."""
        if not self._wanted:
            return
        name = _NAMES[NAMES[counter_of(answer)]] if answer.answer == "ok" else "lease.lost"
        if name not in self._wanted:
            return
        settlement = finished.settlement
        self._tell(
            name,
            job_id=settlement.receipt[:32].decode(),
            job_key=finished.key,
            task=finished.task,
            queue=finished.queue,
            attempt=finished.attempt,
            seconds=finished.seconds,
            delay=settlement.delay if name in ("job.retried", "job.released") else None,
            reason=settlement.reason if answer.answer == "ok" else f"{answer.answer} {answer.detail}".rstrip(),
        )

    def _tell(self, name: EventName, **words: Any) -> None:
        if name in self._wanted:
            self._put(Event(name, self._wall(), worker=self._worker, **words))


class Teller:
    """One thread that tells subscribers of one event after the other; only `close` waits for them."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._waiting: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tenure-events", daemon=True)
        self._started = False
        self._lock = threading.Lock()
        self._left_out = 0
        self._warned_at = float("-inf")

    def put(self, event: Event) -> None:
        """Have an event told; where too many wait already it is left out, which is logged once a minute."""
        if not self._started:
            self._start()
        if self._waiting.qsize() < MAX_WAITING:
            self._waiting.put(event)
            return
        with self._lock:
            self._left_out += 1
            now = self._clock.boot()
            if now - self._warned_at >= _WARN_PERIOD:
                self._warned_at = now
                logger.error(
                    "subscribers are too slow: %d events wait, %d were not told so far", MAX_WAITING, self._left_out
                )

    def close(self, seconds: float) -> None:
        """Let all that waits be told, for at most so many seconds."""
        if not self._started:
            return
        self._waiting.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.error("a subscriber still runs, and %d events wait; they are left", self._waiting.qsize() - 1)

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._thread.start()  # it may fail, and is tried again for the next event
                self._started = True

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                tell(self._app.subscribers.get(event.name, ()), event)
            except BaseException:
                logger.exception("a subscriber of %s raised what is no Exception", event.name)
