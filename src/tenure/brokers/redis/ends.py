"""Who waits for the ends of jobs, and the one connection over which the server tells of them.

A thread reads it as long as somebody waits.  What it is told is only that a job has ended: whoever waits asks for the
rest.  A connection that broke is made anew, and then all who wait ask again, for something may have been missed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence

from tenure.brokers.redis.link import Link
from tenure.brokers.redis.node import Node
from tenure.brokers.redis.resp import pack
from tenure.clock import Clock
from tenure.errors import TenureError
from tenure.retry import reconnect_delay

PING_EVERY = 1.0
"""Seconds of silence after which the server is asked whether it is still there."""
LINGER = 5.0
"""Seconds for which the connection is kept when nobody waits any more."""


class Waiter:
    """One caller: `wake` is called when one of its jobs has ended, or when it has to ask again."""

    def __init__(self, ids: Sequence[str], wake: Callable[[], None]) -> None:
        self.ids = frozenset(ids)
        self.wake = wake


class Ends:
    """Tells waiters of the ends of their jobs; `open` makes a link, `read_limit` is the seconds for an answer."""

    def __init__(
        self,
        open: Callable[[], Link],
        clock: Clock,
        read_limit: float,
        roll: Callable[[], float],
        closing: threading.Event,
    ) -> None:
        self._open = open
        self._clock = clock
        self._read_limit = read_limit
        self._roll = roll
        self._closing = closing
        self.channel = f"tenure:ends:{secrets.token_hex(8)}"
        self.listening = False
        """Whether the server would tell of an end now."""
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._by_id: dict[str, dict[Waiter, None]] = {}
        self._thread: threading.Thread | None = None
        self._link: Link | None = None

    def enter(self, waiter: Waiter) -> None:
        """Tell this waiter from now on; it is woken once `listening` is so."""
        with self._lock:
            self._waiters[waiter] = None
            for id in waiter.ids:
                self._by_id.setdefault(id, {})[waiter] = None
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="tenure-ends", daemon=True)
                self._thread.start()

    def leave(self, waiter: Waiter) -> None:
        """Tell this waiter no more."""
        with self._lock:
            self._waiters.pop(waiter, None)
            for id in waiter.ids:
                waiting = self._by_id.get(id)
                if waiting is not None:
                    waiting.pop(waiter, None)
                    if not waiting:
                        del self._by_id[id]

    def close(self) -> None:
        """Wake all who wait; the broker's `closing` is set before."""
        with self._lock:
            link = self._link
            waiters = list(self._waiters)
        if link is not None:
            link.close()
        for waiter in waiters:
            waiter.wake()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._over():
            try:
                self._listen()
                failures = 0
            except (ConnectionError, TenureError):  # those who wait ask too, and are told
                failures += 1
                self._clock.wait(self._closing, reconnect_delay(failures, self._roll()))

    def _over(self) -> bool:
        """Whether nobody waits any more, so that the thread ends."""
        with self._lock:
            if self._waiters and not self._closing.is_set():
                return False
            self._thread = None
            return True

    def _listen(self) -> None:
        """Pass on what the server tells until nobody has waited for a while; raises ConnectionError."""
        link = self._open()
        with self._lock:
            self._link = link
        try:
            node = link.subscribe([self.channel], self._read_limit)
            self._begin()
            last_wanted = self._clock.boot()
            while not self._closing.is_set():
                self._receive(node)
                if self._waiters:
                    last_wanted = self._clock.boot()
                elif self._clock.boot() - last_wanted > LINGER:
                    return
        finally:
            self.listening = False
            link.close()
            with self._lock:
                self._link = None

    def _begin(self) -> None:
        self.listening = True
        with self._lock:
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.wake()

    def _receive(self, node: Node) -> None:
        """Read one thing that the server says; raises ConnectionError where it says nothing when it is asked."""
        said = node.receive(PING_EVERY)
        if said is None:
            node.send(pack("PING"), self._read_limit)
            said = node.receive(self._read_limit)
            if said is None:
                node.close()
                raise ConnectionError(f"the server at {node.address} did not answer within {self._read_limit:g} s")
        if isinstance(said, list) and said[0] == b"message":
            self._tell(said[2].decode("ascii", "replace"))

    def _tell(self, id: str) -> None:
        with self._lock:
            waiters = list(self._by_id.get(id, ()))
        for waiter in waiters:
            waiter.wake()
