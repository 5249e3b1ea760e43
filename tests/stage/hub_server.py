"""The server's own hub on real sockets, driven by one thread of the test's process, with an engine in memory."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from typing import Self

from tenure.engine.core import Retention
from tenure.engine.engine import Engine
from tenure.server.answers import Answers
from tenure.server.hub import Hub
from tenure.server.session import Connection


class HubServer:
    """Serves until the `with` block ends.  `lines` counts what arrived, `most` is the most connections at one time."""

    def __init__(self, retention: Retention | None = None) -> None:
        self.engine = Engine(
            ":memory:", wall=self._wall(), mono=time.monotonic(), durability="normal", retention=retention
        )
        self.hub = Hub(self.engine, answers=Answers("0", "start", "normal"), mono=time.monotonic())
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"tenure://127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._places: dict[socket.socket, Connection] = {}
        self._todo: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._was_cut = threading.Event()
        self.lines = 0
        self.most = 0
        self.silent = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("stop")
        self._thread.join()
        for one in (self._wake, self._woken):  # not by the thread: it may end before it was woken
            one.close()
        self.engine.close()

    def cut(self) -> None:
        """Close all connections, as a server does that is started again."""
        self._was_cut.clear()
        self._tell("cut")
        assert self._was_cut.wait(5)

    def _tell(self, what: str) -> None:
        self._todo.append(what)
        self._wake.send(b"x")

    def _wall(self) -> int:
        return time.time_ns() // 1_000_000

    def _serve(self) -> None:
        for one in (self._listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        while "stop" not in self._todo:
            now = time.monotonic()
            ready = self._selector.select(max(0.0, self.hub.next_wake(self._wall(), now) - now))
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                self._read(key.fileobj)
            self._flush()
        for one in (self._listener, *self._places):
            one.close()
        self._selector.close()

    def _read(self, one: socket.socket) -> None:
        if one is self._listener:
            new, _ = one.accept()
            self._places[new] = self.hub.open(time.monotonic())
            self._selector.register(new, selectors.EVENT_READ)
            self.most = max(self.most, len(self._places))
        elif one is self._woken:
            one.recv(100)
            if "cut" in self._todo:
                self._todo.remove("cut")
                for place in list(self._places):
                    self._lose(place)
                self._was_cut.set()
        else:
            try:
                data = one.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                self._lose(one)
            else:
                self.lines += data.count(b"\n")
                self.hub.receive(self._places[one], data, time.monotonic())

    def _lose(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        self.hub.lost(self._places.pop(one), time.monotonic())
        one.close()

    def _flush(self) -> None:
        touched = self.hub.turn(self._wall(), time.monotonic())
        if self.silent:
            return
        for one, place in list(self._places.items()):
            if place in touched and place.out:
                data = b"".join(place.out)
                place.out.clear()
                try:
                    one.sendall(data)
                except OSError:
                    self._lose(one)
