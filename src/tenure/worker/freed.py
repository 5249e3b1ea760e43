"""Slots that have become free, on their way to the one thread that takes."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue


class Freed:
    """Tells a waiting thread of free slots once there are as many as it waits for.

    `put` and `wake` may be called from any thread; `get` belongs to one.
    """

    def __init__(self) -> None:
        self._kinds: deque[int] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._wanted = 0

    def wake(self) -> None:
        """End the present wait, or else the next one."""
        self._bell.put(None)

    def put(self, kind: int) -> None:
        """A slot of this kind is free."""
        self._kinds.append(kind)
        if 0 < self._wanted <= len(self._kinds):
            self._wanted = 0
            self._bell.put(None)

    def get(self, count: int = 0, wait: float | None = 0.0) -> list[int]:
        """Return the kinds of all that are there, once there are `count`, after `wait` seconds, or when woken."""
        if len(self._kinds) < count:
            self._wanted = count
            if len(self._kinds) < count:  # none has come in between without seeing that it is waited for
                self._rest(wait)
            self._wanted = 0
        return [self._kinds.popleft() for _ in range(len(self._kinds))]

    def _rest(self, wait: float | None) -> None:
        try:
            self._bell.get(timeout=wait)
            while True:
                self._bell.get_nowait()
        except Empty:
            pass
