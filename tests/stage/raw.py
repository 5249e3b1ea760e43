"""Clients that speak to a server by hand: one that may say anything, and one that behaves and takes the time."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Self

from tenure.brokers.server import address_of
from tenure.errors import BrokerUnavailable
from tenure.wire.replies import Reply, ReplyReader
from tests.stage.apps import jobs

FP = "f" * 32


def new_id() -> str:
    """Return 32 hexadecimal digits that nobody else has."""
    return secrets.token_hex(16)


def add_line(id: str, body: bytes = b"", queue: str = "raw") -> bytes:
    """Return the line of an add."""
    return f"add {id} {queue} t {FP} {len(body)}\n".encode() + body + b"\n"


class RawClient:
    """A connection to the server at `url`; with `greet` it has said hello when it is there."""

    def __init__(self, url: str, greet: bool = True, seconds: float = 10.0) -> None:
        address = address_of(url)
        self.socket = socket.create_connection((address.host, address.port), seconds)
        self.replies: list[Reply] = []
        self._reader = ReplyReader()
        if greet:
            assert self.ask(f"hello 1 {new_id()} worker raw\n".encode()).startswith(b"ok tenure/1")

    def send(self, data: bytes) -> None:
        """Write all of `data`."""
        self.socket.sendall(data)

    def ask(self, data: bytes, answers: int = 1) -> bytes:
        """Write `data`, wait for so many answers, and return the last one's line."""
        self.send(data)
        return self.hear(len(self.replies) + answers)[-1].line

    def hear(self, count: int) -> list[Reply]:
        """Wait until there have been `count` answers in all."""
        while len(self.replies) < count and self._read():
            pass
        assert len(self.replies) >= count, "the server closed the connection"
        return self.replies

    def _read(self) -> bool:
        got = self.socket.recv(1 << 18)
        self.replies += self._reader.feed(got)
        return bool(got)

    def hear_all(self) -> list[bytes]:
        """Read until the server closes, and return the lines of all answers; what is none raises ProtocolError."""
        with suppress(ConnectionResetError):
            while self._read():
                pass
        return [reply.line for reply in self.replies]

    def say_all(self, data: bytes) -> list[bytes]:
        """Write `data`, which the server may cut short, then nothing more; returns the lines of all answers."""
        with suppress(ConnectionError):
            self.send(data)
            self.socket.shutdown(socket.SHUT_WR)
        return self.hear_all()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def raw_clients(url: str, count: int, greet: bool = True) -> Iterator[list[RawClient]]:
    """So many connections, closed at the end of the `with` block."""
    with ExitStack() as stack:
        yield [stack.enter_context(RawClient(url, greet)) for _ in range(count)]


class Neighbour:
    """Adds a job every 10 ms while the `with` block lasts; `worst` is the longest that one took, in seconds."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.adds = 0
        self._error: BrokerUnavailable | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._over.wait(0.01):
                began_at = time.monotonic()
                jobs.work.delay(self.adds)
                self.worst = max(self.worst, time.monotonic() - began_at)
                self.adds += 1
        except BrokerUnavailable as error:
            self._error = error

    def __enter__(self) -> Self:
        jobs.work.delay(-1)  # so that its connection is there
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        assert self._error is None, self._error
        assert self.adds > 0
