"""Who is connected, and which sessions have no connection any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tenure.server.session import Connection
from tenure.wire import encode
from tenure.wire.commands import LINE_AGE, LINE_TIMEOUT, MAX_BODY, MAX_LINE, Hello
from tenure.wire.parse import CommandParser


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server lets its clients do: connections, sizes in bytes, seconds to finish a line."""

    max_connections: int = 10_000
    max_body: int = MAX_BODY
    max_line: int = MAX_LINE
    line_timeout: float = LINE_TIMEOUT


class Crowd:
    """All open connections, counted by session; times are monotonic seconds.

    `known` are sessions that hold jobs of the file and may come back.
    """

    def __init__(self, limits: Limits, known: Iterable[bytes], mono: float) -> None:
        self._limits = limits
        self._open: dict[Connection, None] = {}
        self._of: Counter[bytes] = Counter()
        self._left = dict.fromkeys(known, mono)  # sessions without a connection, since when, in that order

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def open(self, mono: float) -> Connection:
        """A new connection; above the limit it is answered `err limit` and to be closed."""
        limits = self._limits
        connection = Connection(CommandParser(limits.max_body, limits.max_line), mono, limits.line_timeout)
        if len(self._open) >= limits.max_connections:
            connection.out.append(encode.err("limit", f"this server serves {limits.max_connections} connections"))
            connection.closing = connection.gone = True
        else:
            self._open[connection] = None
        return connection

    def greet(self, connection: Connection, hello: Hello) -> None:
        """Note who is at the other end of a connection; a second time changes nothing."""
        if connection.hello is None and not connection.gone:
            connection.hello = hello
            self._of[hello.session] += 1
            self._left.pop(hello.session, None)

    def lose(self, connection: Connection, mono: float) -> bool:
        """The connection is gone; False when it was not here any more."""
        if connection not in self._open:
            return False
        del self._open[connection]
        connection.gone = True
        connection.out.clear()
        if connection.hello is not None:
            session = connection.hello.session
            self._of[session] -= 1
            if not self._of[session]:
                del self._of[session]
                self._left[session] = mono
        return True

    def spoken_for(self, session: bytes, mono: float) -> None:
        """A line, perhaps another's, was about this session: its age counts from here if it is not connected."""
        if session not in self._of:
            self._left.pop(session, None)
            self._left[session] = mono

    def overdue(self, mono: float) -> list[tuple[Connection, str]]:
        """Connections that are to be closed for their silence or slowness, and why; each is told once."""
        found = []
        for connection in self._open:
            why = connection.overdue(mono)
            if why is not None and not connection.closing:
                connection.closing = True
                found.append((connection, why))
        return found

    def forget_sessions(self, forget: Callable[[bytes], bool], mono: float) -> None:
        """Let go of sessions of which no line can arrive any more; `forget` is False where jobs are still held."""
        while self._left:
            session, since = next(iter(self._left.items()))  # the oldest of them
            if since + LINE_AGE > mono:
                return
            del self._left[session]
            if not forget(session):
                self._left[session] = mono  # to be asked again
