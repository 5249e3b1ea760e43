"""A producer in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from tenure import BrokerUnavailable, Job
from tests.stage.apps import jobs


class Producer:
    """Adds jobs of `seconds` one after the other, `pause` seconds apart, and sends again what was not confirmed."""

    def __init__(self, pause: float, seconds: float) -> None:
        self.ids: list[str] = []
        self._pause = pause
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            self.ids.append(self._add().id)

    def _add(self) -> Job[int]:
        add: Callable[[], Job[int]] = partial(jobs.work.delay, len(self.ids), self._seconds)
        while True:
            try:
                return add()
            except BrokerUnavailable as error:
                add = error.resend

    def stop(self) -> list[str]:
        """Finish the last add, and return the ids of all jobs."""
        self._stop.set()
        self._thread.join(15.0)
        assert not self._thread.is_alive()
        return self.ids
