"""One proxied connection: two sockets and a pump for each direction between them."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial

from tenure.faults.loop import READ, WRITE, Loop
from tenure.faults.policy import Direction, Script

CHUNK = 65_536
HIGH_WATER = 262_144
"""Bytes that a pump holds at most before it stops reading, so that a slow reader slows the sender down."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset(sock: socket.socket) -> None:
    """Close `sock` so that its peer sees a reset and not an orderly end; harmless when it is closed already."""
    with contextlib.suppress(OSError):  # a unix socket has no such option and closes the usual way
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    sock.close()


class Pump:
    """One direction of a link: bytes read and not judged yet, and bytes judged and not written yet."""

    def __init__(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        self.direction = direction
        self.source = source
        self.sink = sink
        self.pending = bytearray()
        self.out = bytearray()
        self.ended = False  # the source said that it sends no more
        self.finished = False  # and the sink was told
        self.orphan = False  # the sink is not to be told: whoever sent the bytes counts as gone
        self.waiting: object | None = None  # the pause that the script asked for
        self.frozen: object | None = None  # the stall that holds everything back

    def wants_read(self) -> bool:
        """Tell whether there is room and use for more bytes."""
        stopped = self.ended or self.waiting or self.frozen
        return not stopped and len(self.pending) + len(self.out) < HIGH_WATER

    def wants_write(self) -> bool:
        """Tell whether there are bytes that may be written now."""
        return bool(self.out) and not self.frozen

    def read(self) -> None:
        """Read what is there, once."""
        try:
            data = self.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            if not self.orphan:
                raise
            data = b""
        self.pending += data
        self.ended = not data

    def pass_on(self, forward: int, swallow: int = 0) -> None:
        """Move the first `forward` pending bytes to those to be written and drop the next `swallow`."""
        self.out += self.pending[:forward]
        del self.pending[: forward + swallow]

    def write(self) -> None:
        """Write what the sink takes, and pass the source's end on behind the last byte."""
        with contextlib.suppress(BlockingIOError):
            while self.out:
                del self.out[: self.sink.send(self.out)]
        if self.ended and not (self.pending or self.out or self.finished):
            self.finished = True
            if not self.orphan:
                self.sink.shutdown(socket.SHUT_WR)


class Link:
    """A client's connection and its counterpart to the server; all methods run in the loop's thread.

    `target` is a host and port, or the path of a unix socket.  `forget` is called once, when the link is closed.
    """

    def __init__(
        self,
        loop: Loop,
        client: socket.socket,
        target: tuple[str, int] | str,
        script: Script,
        forget: Callable[[Link], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._server = socket.socket(family_of(target), socket.SOCK_STREAM)
        self._request = Pump(Direction.REQUEST, self._client, self._server)
        self._answer = Pump(Direction.ANSWER, self._server, self._client)
        self._pumps = (self._request, self._answer)
        self._script = script
        self._forget = forget
        self._target = target
        self._connected = False
        self._last: Pump | None = None  # cut as soon as this one has written what it holds
        self._closed = False

    def open(self) -> None:
        """Begin to connect to the server; where none answers, the client's connection is reset."""
        with self._errors_cut():
            for sock in (self._client, self._server):
                sock.setblocking(False)
                if sock.family != getattr(socket, "AF_UNIX", None):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self._server.connect_ex(self._target)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            self._loop.watch(self._server, WRITE, self._server_answered)

    def cut(self) -> None:
        """Reset both connections now; what was not written yet is lost."""
        self._close(reset)

    def freeze(self, seconds: float | None, direction: Direction | None = None) -> None:
        """Keep both connections open and move nothing in `direction` (None: both), for `seconds` or until `thaw`."""
        for pump in self._pumps:
            if direction in (None, pump.direction):
                pump.frozen = freeze = object()
                if seconds is not None:
                    self._loop.after(seconds, partial(self._melt, pump, freeze))
        self._refresh()

    def thaw(self) -> None:
        """Go on where `freeze` stopped, and ask the script again about what it let wait."""
        for pump in self._pumps:
            pump.frozen = pump.waiting = None
        with self._errors_cut():
            for pump in self._pumps:
                self._move(pump)

    def _melt(self, pump: Pump, freeze: object) -> None:
        """End one stall, unless a later one has taken its place."""
        if pump.frozen is freeze:
            pump.frozen = None
            with self._errors_cut():
                self._move(pump)

    @contextlib.contextmanager
    def _errors_cut(self) -> Iterator[None]:
        """An error on either connection resets both, so that the other end learns of it as well."""
        try:
            yield
        except OSError:
            self.cut()

    def _server_answered(self, events: int) -> None:
        if self._closed:
            return
        if self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.cut()
            return
        self._loop.watch(self._server, 0, self._server_answered)
        self._connected = True
        self._refresh()

    def _client_ready(self, events: int) -> None:
        self._ready(events, self._request, self._answer)

    def _server_ready(self, events: int) -> None:
        self._ready(events, self._answer, self._request)

    def _ready(self, events: int, reads: Pump, writes: Pump) -> None:
        if self._closed:  # by an earlier event of the same turn
            return
        with self._errors_cut():
            if events & READ and reads.wants_read():
                reads.read()
                self._move(reads)
            if events & WRITE:
                self._move(writes)

    def _move(self, pump: Pump) -> None:
        """Bring `pump` as far as it gets: judge, write, and close the link where that was the last of it."""
        if self._closed or pump.frozen or not self._connected:
            return
        self._judge(pump)
        pump.write()
        if self._last is not None and not self._last.out:
            self.cut()
        elif all(one.finished or one.orphan for one in self._pumps):
            self._close(socket.socket.close)
        else:
            self._refresh()

    def _judge(self, pump: Pump) -> None:
        if not pump.pending or pump.waiting or self._last is not None:
            return
        verdict = self._script.judge(pump.direction, bytes(pump.pending))
        pump.pass_on(verdict.forward, verdict.swallow)
        pump.orphan = pump.orphan or verdict.orphan
        if verdict.cut:
            self._last = pump
        elif verdict.wait is not None:
            pump.waiting = pause = object()
            self._loop.after(verdict.wait, partial(self._resume, pump, pause))
        elif pump.ended:  # nothing comes that the rest could wait for
            pump.pass_on(len(pump.pending))

    def _resume(self, pump: Pump, pause: object) -> None:
        if pump.waiting is pause:
            pump.waiting = None
            with self._errors_cut():
                self._move(pump)

    def _refresh(self) -> None:
        """Watch for what can be used now; a socket that waits for nothing is not watched, so nothing spins."""
        if self._closed or not self._connected:
            return
        self._loop.watch(self._client, self._events(self._request, self._answer), self._client_ready)
        self._loop.watch(self._server, self._events(self._answer, self._request), self._server_ready)

    def _events(self, reads: Pump, writes: Pump) -> int:
        reading = self._last is None and reads.wants_read()
        return (READ if reading else 0) | (WRITE if writes.wants_write() else 0)

    def _close(self, how: Callable[[socket.socket], None]) -> None:
        if self._closed:
            return
        self._closed = True
        for sock in (self._client, self._server):
            self._loop.watch(sock, 0, self._client_ready)
            how(sock)
        self._forget(self)


def family_of(target: tuple[str, int] | str) -> socket.AddressFamily:
    """Return the address family of a host and port, or of a unix socket's path."""
    if isinstance(target, str):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in target[0] else socket.AF_INET
