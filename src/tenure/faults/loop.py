"""One thread that waits for sockets, timers and calls from other threads.

All sockets of a proxy belong to this thread.  That is why a reset takes effect at once: no other thread can be
inside `recv` on a socket that is being closed, which would keep the kernel from closing it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
CALL_LIMIT = 10.0
"""Seconds after which a call from another thread gives up; the loop never blocks, so only a bug gets there."""


class Loop:
    """A selector in a daemon thread; `watch`, `after` and the callbacks are for that thread only."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._calls: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._open = True  # calls are taken; read and changed with the lock held
        self._running = True  # the loop goes on; changed in its thread only
        self._wake_end, self._wake = socket.socketpair()
        self._wake_end.setblocking(False)
        self._wake.setblocking(False)
        self.watch(self._wake_end, READ, self._woken)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def watch(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever one of `events` is there; 0 stops watching."""
        known = self._selector.get_map().get(sock)
        if events and known is None:
            self._selector.register(sock, events, ready)
        elif events and known is not None and (known.events, known.data) != (events, ready):
            self._selector.modify(sock, events, ready)
        elif known is not None and not events:
            self._selector.unregister(sock)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` once, `seconds` from now."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action))

    def call(self, action: Callable[[], T]) -> T:
        """Run `action` in the loop's thread and return its value; raises RuntimeError once the loop has ended."""
        future: Future[T] = Future()

        def carry_out() -> None:
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001  whatever it is belongs to the caller, not to the loop
                future.set_exception(error)

        with self._lock:
            if not self._open:
                raise RuntimeError("the proxy is closed")
            self._calls.append(carry_out)
            self._poke()
        return future.result(CALL_LIMIT)

    def stop(self, last: Callable[[], None]) -> None:
        """Run `last` in the loop's thread, then end it; harmless when it has ended already."""

        def end() -> None:
            self._running = False
            last()

        with self._lock:
            if self._open:
                self._open = False
                self._calls.append(end)
                self._poke()
        self._thread.join(CALL_LIMIT)

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop is about to wake up anyway
            self._wake.send(b"!")

    def _woken(self, events: int) -> None:
        self._wake_end.recv(4096)

    def _run(self) -> None:
        try:
            while self._running:
                for key, events in self._selector.select(self._patience()):
                    key.data(events)
                self._fire_timers()
                self._carry_out_calls()
        finally:
            with self._lock:  # whoever wakes the loop holds it, so nobody writes to a closed socket
                self._open = False
                self._selector.close()
                self._wake.close()
                self._wake_end.close()

    def _patience(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _carry_out_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()
