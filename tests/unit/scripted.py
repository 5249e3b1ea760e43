"""A server on a real socket whose connections follow scripts, and a clock that a test moves."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self
from zlib import crc32

from tenure.codec import encode_body
from tenure.message import Message
from tenure.wire.commands import Add, Command, Hello
from tenure.wire.parse import CommandParser


class MovedClock:
    """All three clocks in one number; a wait moves it instead of waiting, by a microsecond at least, as any does.

    It starts behind the machine's own, which connections note their use by: none is idle before a test says so.
    """

    def __init__(self) -> None:
        self.now = 16.0
        self.waits: list[float] = []

    def wall(self) -> float:
        return self.now

    boot = mono = wall

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += max(seconds, 1e-6)
        return event.is_set()


class Peer:
    """The server's end of one connection; `got` is all that was read from it."""

    def __init__(self, one: socket.socket, body: int) -> None:
        self.socket = one
        self.body = body
        self.got = b""
        self._parser = CommandParser(max_body=max(body, 1_048_576))

    def read(self) -> list[Command]:
        """Return the next commands; an empty list when the client has closed."""
        while True:
            data = self.socket.recv(65536)
            self.got += data
            found = self._parser.feed(data)
            if found or not data:
                return found

    def commands(self) -> Iterator[Command]:
        """Yield commands until the client closes."""
        while found := self.read():
            yield from found

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hello(self) -> None:
        """Read `hello` and welcome the client."""
        (command,) = self.read()
        assert isinstance(command, Hello), command
        self.send(
            b"ok tenure/1 version=0.1.0 server=ab start=cd time=1 floor=600000 vt=30000 "
            b"body=%d line=65536 take=1000 batch=1000 durability=full\n" % self.body
        )

    def until_closed(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` for the client to close; True when it has."""
        while select.select([self.socket], [], [], seconds)[0]:
            data = self.socket.recv(65536)
            self.got += data
            if not data:
                return True
        return False


Script = Callable[[Peer], None]


class Scripted:
    """Accepts connections; the first follows the first script and so on, later ones are served well.

    `stored` holds what was added, by id; `peers` every connection there was.
    """

    def __init__(self, *scripts: Script, body: int = 1_048_576, path: str = "") -> None:
        self.scripts = list(scripts)
        self.body = body
        self.peers: list[Peer] = []
        self.stored: dict[str, Add] = {}
        if path:
            self._listener = socket.create_server(path, family=socket.AF_UNIX)
            self.url = f"tenure+unix://{path}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port: int = self._listener.getsockname()[1]
            self.url = f"tenure://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for peer in self.peers:
            try:
                peer.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()
        for peer in self.peers:
            peer.socket.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            peer = Peer(one, self.body)
            script = self.scripts.pop(0) if self.scripts else self.serve
            self.peers.append(peer)
            thread = threading.Thread(target=self._run, args=(script, peer))
            self._threads.append(thread)
            thread.start()

    def _run(self, script: Script, peer: Peer) -> None:
        try:
            script(peer)
            peer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def serve(self, peer: Peer) -> None:
        """Answer as a healthy server does."""
        peer.hello()
        for command in peer.commands():
            assert isinstance(command, Add), command
            peer.send(self.answer(command))

    def answer(self, add: Add) -> bytes:
        """Store an add once and return its answer."""
        id = add.id.hex()
        for first, other in self.stored.items():
            if add.key is not None and first != id and other.key == add.key:
                same = other.fingerprint == add.fingerprint
                return f"ok {first} exists\n".encode() if same else f"err key-conflict {first} other\n".encode()
        self.stored[id] = add
        return f"ok {id} created\n".encode()


def cut(peer: Peer) -> None:
    """Close right after the accept."""


def swallow(peer: Peer) -> None:
    """Read what comes and never answer it."""
    peer.hello()
    peer.until_closed()


def deaf(peer: Peer) -> None:
    """Never answer, not even hello."""
    peer.until_closed()


def message(number: int, key: str | None = None, args: bytes = b"abc", fingerprint: bytes = b"f" * 16) -> Message:
    return Message(f"{number:032x}", "shop.charge", args, crc32(args), fingerprint, key=key)


def body(number: int, args: bytes = b"abc") -> bytes:
    return encode_body(message(number, args=args))
