"""Bytes to commands: the server's reading side, without I/O.

A `CommandParser` is fed what the socket gives, in any pieces, and returns the commands that are complete.  A line
that is wrong becomes a `Bad` at its place; nothing that the other side sends raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.wire import lines
from tenure.wire.commands import MAX_BATCH_BYTES, MAX_BODY, MAX_LINE, Add, Bad, Command, Settle
from tenure.wire.fields import Refused
from tenure.wire.lines import Frame

_NEWLINE = 10


class _Open(NamedTuple):
    """A settlement that waits for its adds, and those that came."""

    settle: Settle
    adds: list[Add]


class CommandParser:
    """Turns the bytes of one connection into commands.

    `max_body` and `max_line` are bytes, the line's end included.  Memory stays below one line, one body and, for a
    settlement with adds, one batch.  After a fatal `Bad` nothing more is parsed and `failed` is True.
    """

    def __init__(self, max_body: int = MAX_BODY, max_line: int = MAX_LINE) -> None:
        self.max_body = max_body
        self.max_line = max_line
        self.failed = False
        self._held = bytearray()
        self._frame: Frame | None = None
        self._skip = 0
        self._open: _Open | None = None
        self._missing = 0
        self._size = 0
        self._bad: Bad | None = None
        self._out: list[Command] = []

    @property
    def partial(self) -> bool:
        """True inside an unfinished line, body or settlement with adds."""
        return bool(self._held) or self._frame is not None or self._open is not None

    def plain_add(self, data: bytes) -> Add | None:
        """Return the add that `data` is as a whole, if it is one without options; None leaves it to `feed`."""
        if self._frame is not None or self._open is not None or self._held or self.failed:
            return None
        return lines.plain_add(data, self.max_line, self.max_body)

    def feed(self, data: bytes) -> list[Command]:
        """Take the next bytes and return the commands that are complete now, in order."""
        if self.failed:
            return []
        add = self.plain_add(data)
        if add is not None:
            return [add]
        if self._held or self._frame is not None:
            joined = self._join(data)
            if joined is None:
                return self._taken()
            data = joined
        position, size = 0, len(data)
        while position < size and not self.failed:
            if self._frame is not None:
                position = self._body(self._frame, data, position, size)
            else:
                position = self._next(data, position, size)
        return self._taken()

    def _next(self, data: bytes, position: int, size: int) -> int:
        """Read the line at `position`, or as many plain `done` or adds as stand there; returns where to read on."""
        if self._open is None:
            plain, behind = self._plain(data, position)
            if plain:
                self._out += plain
                return behind
        end = data.find(b"\n", position)
        if end < 0 or end - position >= self.max_line:
            self._unfinished(data, position)
            return size
        if end > position:
            self._line(data[position:end])
        return end + 1

    def _plain(self, data: bytes, position: int) -> tuple[Sequence[Command], int]:
        """Return the lines at `position` that are read in one step, and where the next one begins."""
        if data.startswith(b"add", position):
            return lines.plain_adds(data, position, self.max_line, self.max_body)
        if self.max_line < lines.LONGEST_PLAIN_DONE:
            return (), position
        return lines.plain_dones(data, position)

    def _taken(self) -> list[Command]:
        out, self._out = self._out, []
        return out

    def _join(self, data: bytes) -> bytes | None:
        """Add `data` to what is held; None while that is not enough to go on."""
        held, frame = self._held, self._frame
        if self._skip:
            return data
        held += data
        if frame is not None:
            if len(held) <= frame.length:
                return None
        elif b"\n" not in data:
            if len(held) >= self.max_line:
                self._unfinished(bytes(held), 0)
            return None
        joined = bytes(held)
        held.clear()
        return joined

    def _unfinished(self, data: bytes, position: int) -> None:
        """Keep a line that is not complete, or give up when it is too long."""
        if len(data) - position < self.max_line:
            self._held += data[position:]
            return
        self._fail(Bad("line-too-long", f"a line has at most {self.max_line} bytes", True))

    def _fail(self, bad: Bad) -> None:
        self.failed = True
        self._held.clear()
        self._frame = self._open = self._bad = None
        self._out.append(bad)

    def _line(self, line: bytes) -> None:
        """Read one line; what has a body waits for it in `_frame`."""
        try:
            result = lines.read(line, self._open is not None)
        except Refused as refused:
            self._finish(refused.bad, 0, 0)
            return
        if type(result) is not Frame:
            self._finish(result, 0, 0)  # type: ignore[arg-type]  # mypy narrows no union by `type() is not`
        elif result.length < 0:
            self._finish(result.bad or result.build(b""), result.then, 0)
        else:
            self._await(result)

    def _await(self, frame: Frame) -> None:
        """Wait for the frame's body, or read over one that is too large."""
        if frame.length > self.max_body:
            text = f"the body has {frame.length} bytes, the limit is {self.max_body}"
            frame = frame._replace(bad=Bad("too-large", text))
            self._skip = frame.length
        elif frame.bad is not None:
            self._skip = frame.length
        self._frame = frame

    def _body(self, frame: Frame, data: bytes, position: int, size: int) -> int:
        """Take the frame's body from `data` at `position`; returns where to read on."""
        if self._skip:
            step = min(self._skip, size - position)
            self._skip -= step
            position += step
            if position == size:
                if not self._skip:
                    self._frame = frame._replace(length=0)
                return size
            end = position
        else:
            end = position + frame.length
            if end >= size:
                self._held += data[position:]
                return size
        self._frame = None
        if data[end] != _NEWLINE:
            self._fail(Bad("framing", "a body of the stated length is not followed by a line's end", True))
        else:
            bad = frame.bad
            self._finish(frame.build(data[position:end]) if bad is None else bad, frame.then, end - position)
        return end + 1

    def _finish(self, command: Command, then: int, size: int) -> None:
        """Hand a complete command out, or put it to the settlement that it belongs to."""
        if type(command) is Bad and command.fatal:
            self._fail(command)
        elif self._open is not None:
            self._collect(command, size)
        elif then:
            settle = command if type(command) is Settle else Settle("done", b"", 0)
            self._bad = command if type(command) is Bad else None
            self._open, self._missing, self._size = _Open(settle, []), then, 0
        else:
            self._out.append(command)

    def _collect(self, command: Command, size: int) -> None:
        """Put one add to the open settlement and hand that out when it was the last."""
        opened = self._open
        assert opened is not None
        self._missing -= 1
        self._size += size
        if self._size > MAX_BATCH_BYTES and self._bad is None:
            self._bad = Bad("too-large", f"the adds of a settlement have at most {MAX_BATCH_BYTES} bytes in all")
        if type(command) is Bad and self._bad is None:
            self._bad = command
        if self._bad is not None:
            opened.adds.clear()
        elif type(command) is Add:
            opened.adds.append(command)
        if not self._missing:
            self._out.append(self._bad or opened.settle._replace(then=tuple(opened.adds)))
            self._open = self._bad = None
