"""One blocking connection to our server, and who has to hear of a fork.

Every wait has a limit in total: a server that is silent, or that sends its answer byte by byte, ends in a
ConnectionError and a closed socket.  A connection that has failed once is never used again.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol
from weakref import WeakSet

from tenure.brokers.dialing import dial
from tenure.clock import boot
from tenure.errors import ProtocolError, ServerError
from tenure.wire.replies import Reply, ReplyReader, Welcome, parse_welcome, payload_length

CONNECT_LIMIT = 1.0
"""Seconds in which a connection has to be there."""
READ_LIMIT = 1.0
"""Seconds beyond what was asked for after which silence is a broken connection."""

_KERNEL_TIMEOUTS = os.name == "posix"
SMALL = 16 * 1024
"""Bytes up to which a write is one call."""
_FIRST = 64 * 1024
"""Bytes of the first read of an answer, below what the allocator takes from the system anew each time."""
_CHUNK = 256 * 1024
_SHORT = 256
"""Bytes of the first read where the answer is nearly always one short line."""


class Address(NamedTuple):
    """Where a server listens: a host and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Forks(Protocol):
    """Something that holds sockets or locks which a forked child must not share."""

    def after_fork(self) -> None: ...


_told: WeakSet[Forks] = WeakSet()


def tell_of_forks(one: Forks) -> None:
    """Have `one.after_fork()` called in every child that this process forks."""
    _told.add(one)


def _after_fork() -> None:
    for one in list(_told):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Connection:
    """A connection on which `hello` has been answered; used by one thread at a time.

    `used_at` is when the last line was written, in seconds of `clock.boot()`.  `welcome` is the answer to `hello`.
    `place` belongs to the pool that made it.
    """

    place: object = None

    def __init__(self, address: Address, hello: bytes, limit: float = CONNECT_LIMIT) -> None:
        """Connect and say hello within `limit` seconds; raises ConnectionError, or ServerError for good."""
        self.address = address
        self.closed = False
        self._limit = -1.0
        self._readable: select.poll | None = None
        started = boot()
        self._socket = _connect(address, limit)
        self._send: Callable[[bytes], None] = self._socket.sendall
        tell_of_forks(self)
        self.used_at = started
        left = max(0.001, limit - (boot() - started))
        self.welcome: Welcome = self._hello(hello, left)

    def _hello(self, hello: bytes, limit: float) -> Welcome:
        """Say hello and read the answer; whoever listens there may speak another protocol."""
        address = self.address
        replies: list[Reply] = []
        try:
            self.exchange(hello, 1, limit, replies)
            return parse_welcome(replies[0].line)
        except ServerError as error:
            self.close()
            if error.code in ("limit", "storage"):
                raise ConnectionError(f"the server at {address} takes no connection now: {error}") from None
            raise
        except ProtocolError as error:
            self.close()
            raise ProtocolError(
                f"{error}; what listens at {address} speaks otherwise: is that a Tenure server?"
            ) from None

    def exchange(self, data: bytes, answers: int, limit: float, out: list[Reply]) -> None:
        """Write `data` and append the complete answers to `out`, also those before a fault.

        Raises ConnectionError and closes when fewer than `answers` came within `limit` seconds.
        """
        self.used_at = started = boot()
        try:
            self._write(data, limit, started)
            got = self._recv(_FIRST)
            if answers == 1 and got and got.find(b"\n") == len(got) - 1 and not payload_length(got[:-1]):
                out.append(Reply(got[:-1]))
                return
            self._read(got, answers, limit, started, out)
        except OSError as error:
            raise self._broken(error, limit) from None
        except BaseException:
            self.close()
            raise

    def ask(self, line: bytes, limit: float, now: float) -> bytes:
        """Write a line of at most `SMALL` bytes and return its one-line answer without its end.

        The same as `exchange`, for the call that has to be fast; `now` is the boot clock's, which need not be read
        twice in one call.
        """
        self.used_at = now
        try:
            if self.closed:
                raise ConnectionError("the connection is closed")
            if limit != self._limit:
                self._set_limit(limit)
            self._send(line)
            got = self._recv(_SHORT)
            if got.find(b"\n") + 1 == len(got) > 0:
                return got[:-1]
            out: list[Reply] = []
            self._read(got, 1, limit, now, out)
        except OSError as error:
            raise self._broken(error, limit) from None
        except BaseException:
            self.close()
            raise
        return out[0].line

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
            if _signals_here():
                self._wait_to_write()
            view = view[self._socket.send(view) :]
            if view:
                self._set_limit(self._left(limit, started))

    def _recv(self, size: int) -> bytes:
        if _signals_here():
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

    def _read(self, got: bytes, answers: int, limit: float, started: float, out: list[Reply]) -> None:
        """Read on after the first piece until all answers are there."""
        reader = ReplyReader()
        missing = answers
        while True:
            if not got:
                raise ConnectionError(f"the server at {self.address} closed the connection")
            found = reader.feed(got)
            out += found[:missing]
            missing -= len(found)
            if missing <= 0:
                break
            self._set_limit(self._left(limit, started))
            got = self._recv(_CHUNK)
        if missing < 0 or reader.partial:
            raise ProtocolError(f"the server at {self.address} sent more than was asked for")

    def _left(self, limit: float, started: float) -> float:
        left = limit - (boot() - started)
        if left <= 0:
            raise TimeoutError
        return left

    def _set_limit(self, limit: float) -> None:
        """Bound the next system call; in the kernel where it can, which saves a poll for each read."""
        self._limit = limit
        if not _KERNEL_TIMEOUTS:
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
            return ConnectionError(
                f"the server at {self.address} did not answer within {max(0.01, round(limit, 2)):g} s"
            )
        if isinstance(error, ConnectionError):
            return error
        return ConnectionError(f"the connection to {self.address} broke: {error}")

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
    return _KERNEL_TIMEOUTS and threading.get_ident() == threading.main_thread().ident


def _connect(address: Address, limit: float) -> socket.socket:
    try:
        if address.path:
            one = socket.socket(socket.AF_UNIX)
            try:
                one.settimeout(limit)
                one.connect(address.path)
            except BaseException:
                one.close()
                raise
        else:
            one = dial(address.host, address.port, limit)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConnectionError(f"no connection to the server at {address}: {error}") from error
    one.setblocking(True)
    return one
