"""The connections of one process, lent to one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakSet

from tenure.brokers.connection import Connection, tell_of_forks
from tenure.clock import Clock

IDLE_LIMIT = 45.0
"""Seconds after which an idle connection is replaced; the server closes it after 60."""


class _Place:
    """Room for one connection.  It is free once nobody has it, so also when an exception tore a call out of its
    middle and the connection was not given back.
    """


class Pool:
    """At most `size` connections; the one used last is lent first.

    `connect` is called with the seconds that are left to the caller.  After a fork the child begins with none.
    """

    def __init__(self, connect: Callable[[float], Connection], size: int, clock: Clock) -> None:
        self._connect = connect
        self._size = size
        self._boot = clock.boot
        self._closed = False
        self._begin()
        tell_of_forks(self)

    def _begin(self) -> None:
        self._free = threading.Condition(threading.Lock())
        self._idle: list[Connection] = []
        self._taken: WeakSet[object] = WeakSet()
        self._waiting = 0

    after_fork = _begin
    """The connections close themselves in the child; the lock may have been held when the process was forked."""

    def lend_idle(self, now: float) -> Connection | None:
        """Return a connection that is idle, and was used not long ago, or None; `now` is the boot clock's."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if now - connection.used_at < IDLE_LIMIT:
            return connection
        self._idle.append(connection)  # `lend` replaces it
        return None

    def lend(self, limit: float) -> Connection:
        """Return a connection for one call, waiting up to `limit` seconds; raises ConnectionError."""
        try:
            connection = self._idle.pop()  # one step, so it needs no lock
        except IndexError:
            return self._wait(limit)
        if self._boot() - connection.used_at < IDLE_LIMIT:
            return connection
        connection.close()
        return self._make(limit, connection.place)

    def _wait(self, limit: float) -> Connection:
        """Make a connection if there may be one more, else wait for one that comes back."""
        with self._free:
            self._waiting += 1
            try:
                self._free.wait_for(lambda: self._idle or len(self._taken) < self._size or self._closed, limit)
                if self._closed:
                    raise ConnectionError("the broker is closed")
                if self._idle:
                    return self._idle.pop()
                if len(self._taken) >= self._size:
                    waited = max(0.01, round(limit, 2))
                    raise ConnectionError(f"all {self._size} connections were in use for {waited:g} s; see pool_size")
                place = _Place()
                self._taken.add(place)
            finally:
                self._waiting -= 1
        return self._make(limit, place)

    def _make(self, limit: float, place: object) -> Connection:
        """Open the connection whose place is taken already."""
        try:
            connection = self._connect(limit)
        except BaseException:
            self._gone(place)
            raise
        connection.place = place
        return connection

    def give_back(self, connection: Connection) -> None:
        """Take back a connection whose answers have all been read."""
        if self._closed:
            connection.close()
            return
        self._idle.append(connection)
        # Looked at after the append: a waiter counts itself before it looks for an idle one.
        if self._waiting:
            with self._free:
                self._free.notify()

    def give_up(self, connection: Connection) -> None:
        """Take back a connection that failed; the idle ones go with it, since they fail most likely too."""
        connection.close()
        self._gone(connection.place)
        self._drop_idle()

    def _drop_idle(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()
            self._gone(connection.place)

    def _gone(self, place: object) -> None:
        with self._free:
            self._taken.discard(place)
            self._free.notify()

    def close(self) -> None:
        """Close what is idle now and the rest when it comes back."""
        self._closed = True
        self._drop_idle()
        with self._free:
            self._free.notify_all()
