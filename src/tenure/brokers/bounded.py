"""A blocking socket on which every wait has a limit in total.

A peer that is silent, or that sends its answer byte by byte, ends in a ConnectionError and a closed socket.  A
socket that has failed once is never used again.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from contextlib import suppress

from tenure.brokers.forks import tell_of_forks
from tenure.clock import boot

CONNECT_LIMIT = 1.0
"""Seconds in which a connection has to be there."""
READ_LIMIT = 1.0
"""Seconds beyond what was asked for after which silence is a broken connection."""

SMALL = 16 * 1024
"""Bytes up to which a write is one call."""


class Bounded:
    """A connected socket, used by one thread at a time; `address` is what its errors call the peer.

    `used_at` is when it was last written to, in seconds of `clock.boot()`.  `place` belongs to the pool that made it.
    """

    place: object = None
    _in_kernel = os.name == "posix"
    """Whether the kernel keeps the time of each call, which saves a poll; what is wrapped in TLS cannot have it so."""

    def __init__(self, one: socket.socket, address: object) -> None:
        self._socket = one
        self._peer = address
        self.closed = False
        self._limit = -1.0
        self._readable: select.poll | None = None
        self.used_at = boot()
        tell_of_forks(self)

    def send(self, data: bytes, limit: float) -> None:
        """Write within `limit` seconds; raises ConnectionError and closes when that fails."""
        self.used_at = started = boot()
        try:
            self._write(data, limit, started)
        except OSError as error:
            raise self._broken(error, limit) from None

    def _write(self, data: bytes, limit: float, started: float) -> None:
        if self.closed:
            raise ConnectionError("the connection is closed")
        if limit != self._limit:
            self._set_limit(limit)
        if len(data) <= SMALL:
            self._socket.sendall(data)
            return
        # sendall would give a peer that reads a little now and then the whole limit again each time.
        view = memoryview(data)
        while view:
            if self._in_kernel and _signals_here():
                self._wait_to_write()
            view = view[self._socket.send(view) :]
            if view:
                self._set_limit(self._left(limit, started))

    def _recv(self, size: int) -> bytes:
        if self._in_kernel and _signals_here():
            readable = self._readable
            if readable is None:
                readable = self._readable = select.poll()
                readable.register(self._socket, select.POLLIN)
            if not readable.poll(self._limit * 1000):
                raise TimeoutError
        return self._socket.recv(size)

    def _wait_to_write(self) -> None:
        """Wait until the next write finds something to do; raises TimeoutError."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        if not poll.poll(self._limit * 1000):
            raise TimeoutError

    def _left(self, limit: float, started: float) -> float:
        left = limit - (boot() - started)
        if left <= 0:
            raise TimeoutError
        return left

    def _set_limit(self, limit: float) -> None:
        """Bound the next system call; in the kernel where it can, which saves a poll for each read."""
        self._limit = limit
        if not self._in_kernel:
            self._socket.settimeout(limit)
            return
        micros = max(1, int(limit * 1_000_000))
        packed = struct.pack("ll", micros // 1_000_000, micros % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)

    def _broken(self, error: OSError, limit: float) -> ConnectionError:
        """Close, since an answer may still be on its way, and return what to raise."""
        self.close()
        if isinstance(error, BlockingIOError | TimeoutError):
            return ConnectionError(f"the server at {self._peer} did not answer within {max(0.01, round(limit, 2)):g} s")
        if isinstance(error, ConnectionError) and error.errno is None:  # else it is the system's, and names no peer
            return error
        return ConnectionError(f"the connection to {self._peer} broke: {error}")

    def interrupt(self) -> None:
        """Make a read that waits in another thread end now, as if the server had closed."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close the socket; a second time does nothing."""
        self.closed = True
        self._socket.close()

    after_fork = close
    """The child gives up its copy of the descriptor; the parent's connection stays as it is."""


def _signals_here() -> bool:
    """Whether this is the thread that signals interrupt: each one would give a blocking call the whole limit again."""
    return threading.get_ident() == threading.main_thread().ident
