"""The asyncio shell around the hub: sockets, one timer, signals; no rules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import inf
from typing import Any, Never, cast

from tenure.engine.core import Retention
from tenure.engine.engine import Engine
from tenure.engine.files import Place, StoreError
from tenure.engine.space import RESERVE
from tenure.engine.store import Durability
from tenure.server.address import Address
from tenure.server.answers import Answers
from tenure.server.checkpoints import Checkpoints
from tenure.server.crowd import Limits
from tenure.server.hub import Hub
from tenure.server.listening import bind, let_go
from tenure.server.rescue import rescue
from tenure.server.session import Connection
from tenure.wire.commands import LINE_TIMEOUT, MAX_BODY, MAX_LINE

log = logging.getLogger("tenure.server")

LINGER = 5.0
"""Seconds in which a client may still read its last answers once the server closes its connection."""
QUIET = 0.001
"""Seconds without an answer after which whoever sends something is taken to be alone."""
SPARE_FILES = 64
"""Open files beside those of connections: the data file, what is read from it at the side, and those being refused."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """All that a server is started with; sizes in bytes, times in seconds."""

    listen: Address
    data: str
    durability: Durability = "full"
    result_ttl: float = 3_600.0
    key_window: float = 86_400.0
    max_body: int = MAX_BODY
    max_line: int = MAX_LINE
    max_connections: int = 10_000
    line_timeout: float = LINE_TIMEOUT
    reserve: int = RESERVE


def run(options: ServerOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is called with the URL once connections are accepted.

    Raises StoreError or ListenError when it cannot start, and StoreError when its file is taken away while it runs.
    """
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(_serve(options, announce))
    else:
        uvloop.run(_serve(options, announce))


async def _serve(options: ServerOptions, announce: Callable[[str], None]) -> None:
    options = replace(options, max_connections=_allow_files(options.max_connections))
    listener = await bind(options.listen, lambda: Line(server))
    try:
        engine = _open(options)
    except BaseException:
        let_go(listener, options.listen)
        raise
    server = Server(engine, options, listener)
    try:
        announce(await server.start())
        await server.serve()
    finally:
        server.checkpoints.close()
        engine.close()


def _open(options: ServerOptions) -> Engine:
    engine = Engine(
        options.data,
        wall=_wall(),
        mono=time.monotonic(),
        durability=options.durability,
        retention=Retention(int(options.result_ttl * 1000), int(options.key_window * 1000)),
        reserve=options.reserve,
    )
    for notice in engine.notices:
        log.warning(notice)
    return engine


def _wall() -> int:
    return time.time_ns() // 1_000_000


def _allow_files(connections: int) -> int:
    """Raise this process's own limit of open files to what the connections need; returns how many it allows."""
    try:
        import resource  # not on Windows
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = max(1, soft - SPARE_FILES)
    log.warning(
        "at most %d connections, not %d: this process may have %d open files; raise `ulimit -n`",
        allowed, connections, soft,
    )  # fmt: skip
    return allowed


class Server:
    """One listening socket, its connections, and the turns of the hub between their bytes."""

    def __init__(self, engine: Engine, options: ServerOptions, listener: asyncio.Server) -> None:
        self._loop = asyncio.get_running_loop()
        answers = Answers(
            version("tenure"), secrets.token_hex(8), options.durability, options.max_body, options.max_line
        )
        self.hub = Hub(
            engine,
            answers=answers,
            mono=time.monotonic(),
            limits=Limits(options.max_connections, options.max_body, options.max_line, options.line_timeout),
        )
        self._address = options.listen
        self._listener = listener
        self._space = engine.space
        self._place = Place(options.data)
        self._log = engine.own_log()
        self.checkpoints = Checkpoints(self._log)
        engine.space.look(time.monotonic())
        if options.durability == "full" and not engine.space.tight:
            self.checkpoints.make_room()
        self.transports: dict[Connection, asyncio.Transport] = {}
        self.held: dict[Connection, None] = {}  # of which nothing is read for now
        self._turn_wanted = False
        self._only: Connection | None = None  # which the last turn was for, where it was for one alone
        self._committed = -inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._stop = asyncio.Event()
        self._taken_away: str | None = None  # what happened to the data file
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begin to take connections; returns the URL."""
        await self._listener.start_serving()
        return self._address.url(None if self._address.path else self._listener.sockets[0].getsockname()[1])

    async def serve(self) -> None:
        """Serve until told to stop; then answer what is parked, and let go of all connections.

        Raises StoreError, with nothing more answered, when the data file is taken away.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows: Ctrl+C raises KeyboardInterrupt instead
                self._loop.add_signal_handler(number, self._stop.set)
        self._arm(_wall(), time.monotonic())
        await self._stop.wait()
        self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._taken_away is not None:
            self._give_up(self._taken_away)
        log.info("stopping: no new connections, parked takes are answered, the file is closed")
        self.flush(self.hub.drain(_wall(), time.monotonic()))
        for transport in list(self.transports.values()):
            transport.close()
        await asyncio.sleep(0.05)  # lets the last answers leave; whoever misses one asks the next server
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows, as above
                self._loop.remove_signal_handler(number)  # else the loop does so when it ends, and to its own mind
                signal.signal(number, signal.SIG_IGN)

    def _give_up(self, happened: str) -> Never:
        """Let go of all connections without an answer: nothing is stored any more where a restart would find it."""
        for transport in list(self.transports.values()):
            transport.abort()
        assert self._log is not None  # in memory there is no file to be taken away
        told = rescue(self._log, self._place.path, _wall())
        raise StoreError(f"{happened} while this server was using it, so it stores nothing more and ends. {told}")

    def is_alone(self, connection: Connection, mono: float) -> bool:
        """Whether what a connection sends is carried out in this round of the loop, before other sockets are read.

        Where there are more, all sockets are read first: one commit is for all.  So they are where a turn is to judge
        by what has arrived.
        """
        hub = self.hub
        alone = self._only is connection or mono - self._committed > QUIET
        return alone and not hub.ends_leases and not hub.was_away(mono)

    def want_turn(self) -> None:
        """Have a turn in this round of the loop, after the other sockets have been read."""
        if not self._turn_wanted:
            self._turn_wanted = True
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """Have a turn now."""
        self._turn_wanted = False
        if self._stop.is_set():
            return
        wall, mono = _wall(), time.monotonic()
        self._taken_away = self._place.look(mono)
        if self._taken_away is not None:
            self._stop.set()
            return
        answered = self.hub.turn(wall, mono)
        self._only = answered[0] if len(answered) == 1 else None
        self.flush(answered)
        if self.hub.background:
            self._start_background()
        self.checkpoints.look(self._space.tight)
        for connection in self.hub.behind:
            self.hold(connection)
        if self.held:
            self._read_on()
        self._arm(wall, mono)

    def flush(self, connections: list[Connection]) -> None:
        """Write the answers that have just been committed."""
        self._committed = time.monotonic()
        for connection in connections:
            transport = self.transports.get(connection)
            if transport is None:
                continue
            out = connection.out
            transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()
            if connection.closing:
                self.part(transport)

    def part(self, transport: asyncio.Transport) -> None:
        """Close a connection once its client has read the rest, or when it takes too long over that."""
        transport.close()
        self._loop.call_later(LINGER, transport.abort)

    def hold(self, connection: Connection) -> None:
        """Read nothing of a connection until a turn leaves nothing of it over."""
        transport = self.transports.get(connection)
        if connection not in self.held and transport is not None and not transport.is_closing():
            transport.pause_reading()
            self.held[connection] = None

    def _read_on(self) -> None:
        for connection in [one for one in self.held if not one.behind]:
            del self.held[connection]
            transport = self.transports.get(connection)
            if transport is not None and not transport.is_closing():
                transport.resume_reading()

    def _arm(self, wall: int, mono: float) -> None:
        """See to it that the next turn comes in time; an earlier timer that is set already does as well.

        The times are those of the turn that has just ended.
        """
        wake = self.hub.next_wake(wall, mono)
        if self._timer is not None:
            if mono < self._timer_at <= wake:
                return
            self._timer.cancel()
        self._timer_at = wake
        self._timer = self._loop.call_later(max(0.0, wake - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.turn()

    def _start_background(self) -> None:
        work, self.hub.background = self.hub.background, []
        for connection, question in work:
            task = self._loop.create_task(self._answer_later(connection, question))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _answer_later(self, connection: Connection, question: Callable[[], dict[str, Any]]) -> None:
        answer: dict[str, Any] | None = None
        try:
            answer = await self._loop.run_in_executor(None, question)
        except Exception:
            log.exception("a recount failed")
        self.flush(self.hub.finish(connection, answer, time.monotonic()))
        self.want_turn()


class Line(asyncio.Protocol):
    """One connection's ends: bytes to the hub, and its answers back by `Server`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._receive = server.hub.receive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream server makes only these; uvloop's own class does not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._connection = self._server.hub.open(time.monotonic())
        self._server.transports[self._connection] = self._transport
        if self._connection.closing:
            self._transport.write(b"".join(self._connection.out))
            self._server.part(self._transport)

    def data_received(self, data: bytes) -> None:
        # The arrival is stamped here, after the bytes were read: a lease's `hold` counts from it.
        server, connection, mono = self._server, self._connection, time.monotonic()
        alone = server.is_alone(connection, mono)
        if alone:
            answered = server.hub.add_at_once(connection, data, _wall(), mono)
            if answered:
                server.flush(answered)
                return
        if self._receive(connection, data, mono):
            if alone:
                server.turn()
            else:
                server.want_turn()
        if connection.full:
            server.hold(connection)

    def eof_received(self) -> None:
        # The transport closes itself, and calls `connection_lost` in a later round of the loop: an add that is carried
        # out in this one must not be handed to who has gone.
        self._server.hub.ends(self._connection)

    def pause_writing(self) -> None:
        self._server.hub.unread(self._connection, time.monotonic())
        self._server.hold(self._connection)

    def resume_writing(self) -> None:
        self._server.hub.read_on(self._connection)
        self._server.want_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.hub.lost(self._connection, time.monotonic())
        self._server.transports.pop(self._connection, None)
        self._server.held.pop(self._connection, None)
