"""One blocking connection to our server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from tenure.brokers.bounded import CONNECT_LIMIT, Bounded
from tenure.brokers.dialing import dial
from tenure.clock import boot
from tenure.errors import ProtocolError, ServerError
from tenure.wire.replies import Reply, ReplyReader, Welcome, parse_welcome, whole

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


class Connection(Bounded):
    """A connection on which `hello` has been answered, by `welcome`; used by one thread at a time."""

    def __init__(self, address: Address, hello: bytes, limit: float = CONNECT_LIMIT) -> None:
        """Connect and say hello within `limit` seconds; raises ConnectionError, or ServerError for good."""
        self.address = address
        started = boot()
        super().__init__(_connect(address, limit), address)
        self._send: Callable[[bytes], None] = self._socket.sendall
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
            reply = whole(got) if answers == 1 else None
            if reply is None:
                self._read(got, answers, limit, started, out)
            else:
                out.append(reply)
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
