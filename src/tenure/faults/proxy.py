"""A proxy that breaks connections on purpose."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import unquote, urlsplit

from tenure.faults import checks
from tenure.faults.link import Link, family_of, reset
from tenure.faults.loop import READ, Loop
from tenure.faults.orders import Conversation, Orders, Slow, Tear
from tenure.faults.policy import Direction, PassAll, Script

T = TypeVar("T")
Target = tuple[str, int] | str
DEFAULT_PORT = 7333
_NO_STALL: tuple[float, Direction | None] = (-math.inf, None)
"""Until when new connections stall, and in which direction."""


def parse_target(target: Target) -> Target:
    """Return a host and port, or a unix socket's path; text is a broker's URL, `HOST:PORT` or `unix:PATH`.

    Raises ValueError for text that is none of these.
    """
    if not isinstance(target, str):
        return target
    for prefix in ("unix:", "tenure+unix://"):
        if target.startswith(prefix) and target != prefix:
            path = target.removeprefix(prefix)
            return path if prefix == "unix:" else unquote(urlsplit(target).path)
    with contextlib.suppress(ValueError):  # a port that is no number up to 65535
        parts = urlsplit(target if "://" in target else f"tenure://{target}")
        # Only a URL may leave the port out: a word alone is more likely a mistake than a machine.
        port = DEFAULT_PORT if parts.port is None and "://" in target else parts.port
        if parts.hostname and port:
            return "127.0.0.1" if parts.hostname == "localhost" else parts.hostname, port
    raise ValueError(f"{target!r} names no server; use HOST:PORT, tenure://HOST:PORT or unix:PATH")


class Proxy:
    """Stands between clients and a server and breaks their connections when told to.

    It listens as soon as it is made, passes every byte through, and ends with `close` or its `with` block.  Each
    verb takes effect before it returns, for the connections that clients had made by then.  `target` may be
    changed at any time; new connections go there.  `script` makes the object that decides about the bytes of each
    new connection.  The verbs may be called from any thread; they raise RuntimeError after `close`, and ValueError for
    a number that cannot be: seconds are above 0, counts 1 or more, unless a verb says otherwise.
    """

    def __init__(
        self, target: Target, listen: tuple[str, int] = ("127.0.0.1", 0), script: Callable[[], Script] = PassAll
    ) -> None:
        self.target = parse_target(target)
        self._scheme = target.partition("://")[0] if isinstance(target, str) and "://" in target else "tenure"
        self._orders = Orders(script)
        self._links: set[Link] = set()
        self._stall_new = _NO_STALL
        self._listener = socket.create_server(listen, family=family_of(listen), backlog=1024)
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
        """The broker URL that leads through this proxy, of the target's scheme where that was a URL."""
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"{self._scheme.removesuffix('+unix')}://{host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open; a stalled one counts, also when its client has gone."""
        return len(self._links)

    @property
    def swallowed(self) -> int:
        """How many answers were swallowed for `drop_answer` so far."""
        return self._orders.swallowed

    def pass_through(self) -> None:
        """Go back to normal: end every stall, let go what is held back, and forget all that was to happen."""

        def act() -> None:
            self._orders.clear()
            self._stall_new = _NO_STALL
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

    def stall(
        self, seconds: float | None = None, new_connections: bool = True, direction: Direction | None = None
    ) -> int:
        """Keep open connections open and forward nothing in `direction` (None: both); returns how many they are.

        It lasts `seconds`, or until `pass_through` where that is None; then what was held back goes on its way,
        late.  New connections work where `new_connections` is True, else they stall until the same moment.
        """
        checks.seconds_or_none("seconds", seconds)

        def act() -> int:
            for link in self._links:
                link.freeze(seconds, direction)
            end = math.inf if seconds is None else time.monotonic() + seconds
            self._stall_new = _NO_STALL if new_connections else (end, direction)
            return len(self._links)

        return self._tell(act)

    def drop_answer(self, count: int = 1) -> None:
        """The next `count` times: let a request reach the server, swallow what it answers and reset that connection.

        Only requests that are sent after this call count.  The proxy knows no lines: the first bytes from the server
        after a request are its answer.  Every request counts, be it a `hello` or an `extend`.
        """
        checks.count("count", count)
        self._tell(lambda: self._orders.drop(count))

    def cut_on_accept(self, count: int = 1) -> None:
        """Reset each of the next `count` new connections right after it opened."""
        checks.count("count", count)

        def act() -> None:
            self._orders.accept_cuts = count

        self._tell(act)

    def cut_after(self, count: int, direction: Direction) -> None:
        """Reset the first connection on which `count` more bytes went in `direction`; exactly these get through.

        Each connection is counted on its own, from this call on.  With 0 the next byte is the one that is lost.
        """
        checks.count("count", count, least=0)

        def act() -> None:
            self._orders.tear = Tear(count, direction)

        self._tell(act)

    def late_request(self, seconds: float | None = None, count: int = 1) -> None:
        """Hold each of the next `count` requests back, and deliver it to the server when its client has moved on.

        Its connection is silent meanwhile.  It is delivered after `seconds`; where that is None, as soon as the same
        bytes were sent on another connection and answered there, or at `pass_through`.  That its client is gone by
        then does not matter.  What the server answers to it is swallowed, and the old connection reset.
        """
        checks.seconds_or_none("seconds", seconds)
        checks.count("count", count)
        self._tell(lambda: self._orders.hold(count, seconds))

    def delay(self, each: float, seconds: float | None = None, direction: Direction | None = None) -> None:
        """Let all that is read wait `each` seconds before it goes on in `direction` (None: both); 0 ends it.

        It lasts `seconds`, or until `pass_through` where that is None; new connections are slow as well.
        """
        checks.seconds_or_zero("each", each)
        self._slow(self._orders.delays, each, seconds, direction)

    def throttle(self, rate: int, seconds: float | None = None, direction: Direction | None = None) -> None:
        """Let at most `rate` bytes a second through in `direction` (None: both) of each connection; 0 ends it.

        It lasts `seconds`, or until `pass_through` where that is None; new connections are slow as well.
        """
        checks.count("rate", rate, least=0)
        self._slow(self._orders.rates, rate, seconds, direction)

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

    def _slow(
        self, lines: dict[Direction, Slow], figure: float, seconds: float | None, direction: Direction | None
    ) -> None:
        """Make lines slow, and take it back after `seconds` unless another order has come meanwhile."""
        checks.seconds_or_none("seconds", seconds)
        slow = Slow(figure)

        def restore() -> None:
            for way in [way for way, order in lines.items() if order is slow]:
                del lines[way]

        def act() -> None:
            lines.update((way, slow) for way in Direction if direction in (None, way))
            if seconds is not None:
                self._loop.after(seconds, restore)

        self._tell(act)

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
        end, direction = self._stall_new
        left = end - time.monotonic()
        if left > 0:
            link.freeze(None if left == math.inf else left, direction)

    def _end(self) -> None:
        self._loop.watch(self._listener, 0, self._accept)
        self._listener.close()
        for link in list(self._links):
            link.cut()
