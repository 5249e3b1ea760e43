"""A producer in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count

from tenure import BrokerUnavailable, Job, Task
from tests.stage.apps import jobs


class Producer:
    """Adds jobs of `seconds`, in each of its threads `pause` seconds apart, and sends again what was not confirmed.

    It goes on until it is stopped; with `limit` it adds so many, the rest of them without a pause once it is stopped.
    """

    def __init__(
        self,
        pause: float,
        seconds: float,
        *,
        task: Task[[int, float], int] = jobs.work,
        limit: int | None = None,
        threads: int = 1,
    ) -> None:
        self.ids: list[str] = []
        self._pause = pause
        self._seconds = seconds
        self._task = task
        self._stop = threading.Event()
        self._endless = limit is None
        self._numbers = iter(count() if limit is None else range(limit))  # each of its steps is one for all threads
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not (self._stop.wait(self._pause) and self._endless):
            number = next(self._numbers, None)
            if number is None:
                return
            self.ids.append(self._add(number).id)

    def _add(self, number: int) -> Job[int]:
        add: Callable[[], Job[int]] = partial(self._task.delay, number, self._seconds)
        while True:
            try:
                return add()
            except BrokerUnavailable as error:
                add = error.resend

    def stop(self) -> list[str]:
        """Finish the last adds, or what is left of the limit, and return the ids of all jobs."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()
        return self.ids
