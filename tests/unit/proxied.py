"""What the tests of the fault proxy share: a server that echoes, a proxy before it, and clients."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tenure.faults import Direction, Proxy, Verdict

PATIENCE = 10.0
"""Seconds after which something that should have come counts as missing."""
QUIET = 0.1
"""Seconds of nothing that count as silence."""


class Echo(socketserver.ThreadingTCPServer):
    """Sends every byte back, ends its side when the client does, and keeps what it was sent."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.received = b""
        self.arrived = threading.Condition()

    @property
    def target(self) -> tuple[str, int]:
        return "127.0.0.1", self.socket.getsockname()[1]

    def wait_for(self, data: bytes) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: data in self.received, PATIENCE)

    def note(self, data: bytes) -> None:
        with self.arrived:
            self.received += data
            self.arrived.notify_all()


class EchoHandler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65_536):
                self.server.note(data)
                self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.target) as proxy:
        yield proxy


@dataclass
class Client:
    sock: socket.socket

    def ask(self, data: bytes) -> bytes:
        self.sock.sendall(data)
        return self.read(len(data))

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (chunk := self.sock.recv(size - len(data))):
            data += chunk
        return data

    def is_silent(self) -> bool:
        return not select.select([self.sock], [], [], QUIET)[0]

    def is_reset(self) -> bool:
        try:
            self.sock.recv(1)
        except ConnectionResetError:
            return True
        return False


@pytest.fixture
def connect() -> Iterator[Callable[[Proxy], Client]]:
    with contextlib.ExitStack() as stack:
        yield lambda proxy: Client(stack.enter_context(socket.create_connection(proxy.address, PATIENCE)))


Connect = Callable[[Proxy], Client]


def meets_reset(connect: Connect, proxy: Proxy) -> bool:
    """Tell whether a new connection is reset at once, be it that `connect` itself sees it already."""
    try:
        return connect(proxy).is_reset()
    except ConnectionResetError:
        return True


def eventually(condition: Callable[[], bool]) -> bool:
    """Look until `condition` holds; for what no socket or event tells of."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        select.select([], [], [], 0.005)
    return condition()


@dataclass
class Pair:
    """The two ends of one connection through a proxy."""

    proxy: Proxy
    client: Client
    server: socket.socket


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener, Proxy(listener.getsockname()) as proxy:
        listener.settimeout(PATIENCE)
        client = socket.create_connection(proxy.address, PATIENCE)
        server, _ = listener.accept()
        server.settimeout(PATIENCE)
        with client, server:
            yield Pair(proxy, Client(client), server)


class WholeLines:
    """A script that lets only whole lines through."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        return Verdict(forward=data.rfind(b"\n") + 1)
