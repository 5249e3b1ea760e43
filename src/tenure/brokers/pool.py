"""The connections of one process, lent to one call at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from tenure.brokers.forks import tell_of_forks
from tenure.clock import Clock

IDLE_LIMIT = 45.0
"""Seconds after which an idle connection is replaced; the server closes it after 60."""


class Lendable(Protocol):
    """What can be lent to one call at a time."""

    place: object

    @property
    def used_at(self) -> float:
        """When something was last written, in seconds of `clock.boot()`."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Lendable)


class _Place:
    """Room for one connection.  It is free once nobody has it, so also when an exception tore a call out of its
    middle and the connection was not given back.
    """


class _Waiter(Generic[C]):
    """A call that waits for a connection, or for room to make one; it sleeps on `woken` until `given` is there."""

    def __init__(self) -> None:
        self.given: C | _Place | None = None
        self.woken = threading.Lock()
        self.woken.acquire()


class Pool(Generic[C]):
    """At most `size` connections; the one used last is lent first.

    Those who have to wait are served in the order in which they came: a thread that gives its connection back and
    wants it again at once would else keep it from them for ever.

    `connect` is called with the seconds that are left to the caller.  After a fork the child begins with none.
    """

    def __init__(self, connect: Callable[[float], C], size: int, clock: Clock) -> None:
        self._connect = connect
        self._size = size
        self._boot = clock.boot
        self._closed = False
        self._begin()
        tell_of_forks(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._taken: WeakSet[object] = WeakSet()
        self._waiters: deque[_Waiter[C]] = deque()

    after_fork = _begin
    """The connections close themselves in the child; the lock may have been held when the process was forked."""

    def lend_idle(self, now: float) -> C | None:
        """Return a connection that is idle, and was used not long ago, or None; `now` is the boot clock's."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if now - connection.used_at < IDLE_LIMIT:
            return connection
        self._idle.append(connection)  # `lend` replaces it
        return None

    def lend(self, limit: float) -> C:
        """Return a connection for one call, waiting up to `limit` seconds; raises ConnectionError."""
        try:
            connection = self._idle.pop()  # one step, so it needs no lock
        except IndexError:
            connection = None
        if connection is None:  # outside of `except`: what fails from here on has nothing to do with an empty list
            return self._wait(limit)
        if self._boot() - connection.used_at < IDLE_LIMIT:
            return connection
        connection.close()
        return self._make(limit, connection.place)

    def _wait(self, limit: float) -> C:
        """Make a connection if there may be one more, else wait for one that comes back."""
        given = self._given(limit)
        if isinstance(given, _Place):
            return self._make(limit, given)
        if given is not None:
            return given
        if self._closed:
            raise ConnectionError("the broker is closed")
        waited = max(0.01, round(limit, 2))
        raise ConnectionError(f"all {self._size} connections were in use for {waited:g} s; see pool_size")

    def _given(self, limit: float) -> C | _Place | None:
        """Stand in line for up to `limit` seconds."""
        waiter: _Waiter[C] = _Waiter()
        with self._lock:
            self._waiters.append(waiter)
            self._serve()
        try:
            if waiter.given is None:
                waiter.woken.acquire(timeout=max(0.0, limit))
        finally:
            with self._lock:
                self._serve()  # nobody tells of a place that was left and not given up
                if waiter.given is None:
                    self._waiters.remove(waiter)
        return waiter.given

    def _serve(self) -> None:
        """Give what there is to those who came first; called with the lock."""
        while self._waiters and not self._closed:
            given = self._free()
            if given is None:
                return
            waiter = self._waiters.popleft()
            waiter.given = given
            waiter.woken.release()

    def _free(self) -> C | _Place | None:
        with suppress(IndexError):
            return self._idle.pop()
        if len(self._taken) >= self._size:
            return None
        place = _Place()
        self._taken.add(place)
        return place

    def _make(self, limit: float, place: object) -> C:
        """Open the connection whose place is taken already."""
        try:
            connection = self._connect(limit)
        except BaseException:
            self._gone(place)
            raise
        connection.place = place
        return connection

    def give_back(self, connection: C) -> None:
        """Take back a connection whose answers have all been read."""
        if self._closed:
            connection.close()
            return
        self._idle.append(connection)
        # Looked at after the append: a waiter stands in line before it looks for an idle one.
        if self._waiters:
            with self._lock:
                self._serve()

    def give_up(self, connection: C) -> None:
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
        with self._lock:
            self._taken.discard(place)
            self._serve()

    def close(self) -> None:
        """Close what is idle now and the rest when it comes back."""
        self._closed = True
        self._drop_idle()
        with self._lock:
            for waiter in self._waiters:
                if waiter.woken.locked():  # not by an earlier close
                    waiter.woken.release()
