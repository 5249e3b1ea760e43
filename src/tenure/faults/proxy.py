"""A proxy that breaks connections on purpose."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from tenure.faults.link import Link, reset
from tenure.faults.loop import READ, Loop
from tenure.faults.policy import Conversation, Orders, PassAll, Script

T = TypeVar("T")
Target = tuple[str, int] | str
DEFAULT_PORT = 7333


def parse_target(target: Target) -> Target:
    """Return a host and port, or a unix socket's path; text is `tenure://HOST:PORT`, `HOST:PORT` or `unix:PATH`."""
    if not isinstance(target, str):
        return target
    if target.startswith("unix:"):
        return target.removeprefix("unix:")
    parts = urlsplit(target if "://" in target else f"tenure://{target}")
    if not parts.hostname:
        raise ValueError(f"{target!r} names no server; use HOST:PORT, tenure://HOST:PORT or unix:PATH")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return host, DEFAULT_PORT if parts.port is None else parts.port


class Proxy:
    """Stands between clients and a server and breaks their connections when told to.

    It listens as soon as it is made, passes every byte through, and ends with `close` or its `with` block.  Each
    verb takes effect before it returns, for the connections that clients had made by then.  `target` may be
    changed at any time; new connections go there.  `script` makes the object that decides about the bytes of each
    new connection.  The verbs may be called from any thread; they raise RuntimeError after `close`.
    """

    def __init__(
        self, target: Target, listen: tuple[str, int] = ("127.0.0.1", 0), script: Callable[[], Script] = PassAll
    ) -> None:
        self.target = parse_target(target)
        self._orders = Orders(script)
        self._links: set[Link] = set()
        self._stall_new_until = -math.inf
        self._listener = socket.create_server(listen, backlog=1024)
        self._listener.setblocking(False)
        self._address: tuple[str, int] = self._listener.getsockname()[:2]
        self._loop = Loop(f"tenure-proxy-{self.port}")
        self._loop.watch(self._listener, READ, self._accept)
        self._loop.start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that clients connect to."""
        return self._address

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._address[1]

    @property
    def url(self) -> str:
        """The broker URL that leads through this proxy."""
        return f"tenure://{self._address[0]}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open; a stalled one counts, also when its client has gone."""
        return len(self._links)

    @property
    def swallowed(self) -> int:
        """How many answers were swallowed for `drop_answer` so far."""
        return self._orders.swallowed

    def pass_through(self) -> None:
        """Go back to normal: end every stall and forget all that was to be dropped or cut."""

        def act() -> None:
            self._orders.clear()
            self._stall_new_until = -math.inf
            for link in list(self._links):
                link.thaw()

        self._tell(act)

    def cut(self) -> int:
        """Reset every open connection, at both its ends, and return how many they were; new ones work."""

        def act() -> int:
            links = list(self._links)
            for link in links:
                link.cut()
            return len(links)

        return self._tell(act)

    def stall(self, seconds: float | None = None, new_connections: bool = True) -> int:
        """Keep open connections open and forward nothing either way; returns how many they are.

        It lasts `seconds`, or until `pass_through` where that is None; then what was held back goes on its way,
        late.  New connections work where `new_connections` is True, else they stall until the same moment.
        """

        def act() -> int:
            for link in self._links:
                link.freeze(seconds)
            end = math.inf if seconds is None else time.monotonic() + seconds
            self._stall_new_until = -math.inf if new_connections else end
            return len(self._links)

        return self._tell(act)

    def drop_answer(self, count: int = 1) -> None:
        """The next `count` times: let a request reach the server, swallow what it answers and reset that connection.

        Only requests that are sent after this call count.  The proxy knows no lines: the first bytes from the server
        after a request are its answer.  Every request counts, be it a `hello` or an `extend`.
        """
        self._tell(lambda: self._orders.drop(count))

    def cut_on_accept(self, count: int = 1) -> None:
        """Reset each of the next `count` new connections right after it opened."""

        def act() -> None:
            self._orders.accept_cuts = count

        self._tell(act)

    def close(self) -> None:
        """Stop listening and reset every connection; harmless the second time."""
        self._loop.stop(self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, act: Callable[[], T]) -> T:
        """Carry `act` out in the loop's thread, behind all connections that the kernel has completed so far."""

        def in_order() -> T:
            self._accept(READ)
            return act()

        return self._loop.call(in_order)

    def _accept(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):  # none left, or one that has gone again
            while True:
                client, _ = self._listener.accept()
                self._opened(client)

    def _opened(self, client: socket.socket) -> None:
        if self._orders.opening() == "cut":
            reset(client)
            return
        link = Link(self._loop, client, self.target, Conversation(self._orders), self._links.discard)
        self._links.add(link)
        link.open()
        left = self._stall_new_until - time.monotonic()
        if left > 0:
            link.freeze(None if left == math.inf else left)

    def _end(self) -> None:
        self._loop.watch(self._listener, 0, self._accept)
        self._listener.close()
        for link in list(self._links):
            link.cut()
