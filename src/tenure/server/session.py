"""One connection as the server sees it, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from tenure.wire.commands import (
    IDLE_TIMEOUT,
    LINE_TIMEOUT,
    MAX_BATCH_LINES,
    Add,
    Browse,
    Command,
    Hello,
    PurgeQueue,
    Report,
    Settle,
    Show,
    Take,
    Wait,
)
from tenure.wire.parse import CommandParser

LONG = frozenset((Take, Wait, Show, Browse, Report, PurgeQueue))
"""Lines that cost many times what others do, or whose answers are as long: a connection gets one of them a turn."""

Arrived = tuple["Connection", Command, float]
"""A command, whose it is, and when it had been read (monotonic seconds)."""


class Adds(NamedTuple):
    """Adds of one connection that stand behind each other, which are carried out together."""

    lines: Sequence[Add]


class Settles(NamedTuple):
    """Settlements of one connection that stand behind each other, which are carried out together."""

    lines: Sequence[Settle]


def together(inbox: Sequence[Arrived]) -> Iterator[tuple[Connection, Command | Adds | Settles, float]]:
    """Yield these lines in order; settlements, and adds that stand behind each other, as one."""
    if len(inbox) == 1 and type(inbox[0][1]) is not Settle:
        yield inbox[0]
        return
    for group, lines in groupby(inbox, _group):
        if group is None:
            yield from lines
            continue
        whose, kind = group
        _, commands, arrived = zip(*lines, strict=True)
        if kind is Settle:
            yield whose, Settles(commands), arrived[0]
        else:
            yield whose, Adds(commands) if len(commands) > 1 else commands[0], arrived[0]


def _group(line: Arrived) -> tuple[Connection, type] | None:
    kind = type(line[1])
    return (line[0], kind) if kind is Settle or kind is Add else None


@dataclass(slots=True, eq=False)
class Parked:
    """A take that waits for a job: it is answered by the first of a job, its deadline, or a line behind it.

    `arrived` and `deadline` are monotonic seconds.
    """

    connection: Connection
    take: Take
    arrived: float
    deadline: float


@dataclass(slots=True, eq=False)
class ParkedWait:
    """A wait none of whose jobs has ended: it is answered by the first of an end, its deadline, or a line behind it.

    `jobs` are those that its ids stand for.  `arrived` and `deadline` are monotonic seconds.
    """

    connection: Connection
    wait: Wait
    jobs: Sequence[bytes]
    arrived: float
    deadline: float


@dataclass(slots=True, eq=False)
class Connection:
    """What the server remembers of a connection: who it is, what it waits for, what is to be written to it."""

    parser: CommandParser
    last_line: float
    line_timeout: float = LINE_TIMEOUT
    hello: Hello | None = None
    parked: Parked | ParkedWait | None = None
    partial_since: float | None = None
    stream_since: float | None = None
    out: list[bytes] = field(default_factory=list)
    closing: bool = False
    """Close it once `out` is written."""
    gone: bool = False
    busy: bool = False
    """An answer is being made elsewhere."""
    unread_since: float | None = None
    """Since when the client leaves so much unread that nothing more is to be written to it."""
    lines: list[Arrived] = field(default_factory=list)
    """What has been read and is not carried out yet."""

    @property
    def waits(self) -> bool:
        """True while no line is carried out, so that answers stay in order and do not pile up."""
        return self.busy or self.unread_since is not None

    @property
    def is_at_rest(self) -> bool:
        """True where the next bytes may be carried out before a turn: it has said hello, and nothing of it is open."""
        return self.hello is not None and self.parked is None and not self.lines and not self.waits

    @property
    def full(self) -> bool:
        """True where nothing more is to be read before the next turn: there is enough for it."""
        return self.waits or len(self.lines) >= MAX_BATCH_LINES

    @property
    def behind(self) -> bool:
        """True after a turn that left lines over: nothing more is to be read before they are carried out."""
        return self.waits or bool(self.lines)

    def share(self) -> list[Arrived]:
        """Take the lines of one turn off `lines`: a batch at most, and nothing behind the first `LONG` one.

        So what one connection sends costs the others a bounded time, and its answers a bounded memory.
        """
        lines = self.lines
        if self.waits:
            return []
        if len(lines) == 1:  # nearly always
            self.lines = []
            return lines
        asked = (place for place, line in enumerate(lines[:MAX_BATCH_LINES], 1) if type(line[1]) in LONG)
        end = next(asked, MAX_BATCH_LINES)
        self.lines = lines[end:]
        return lines[:end]

    def feed(self, data: bytes, mono: float) -> bool:
        """Take bytes that were read at `mono`; True when they complete a command, which is in `lines` then."""
        commands = self.parser.feed(data)
        if commands:
            self.last_line = mono
        if not self.parser.partial:
            self.partial_since = self.stream_since = None
        else:
            if commands or self.partial_since is None:
                self.partial_since = mono
            if self.stream_since is None:
                self.stream_since = mono
        self.lines += [(self, command, mono) for command in commands]
        return bool(commands)

    def overdue(self, mono: float) -> str | None:
        """Why this connection is to be closed, or None.

        These limits bound how long after its writing a line can still arrive, which the rules for old lines build on.
        """
        if self.partial_since is not None and mono - self.partial_since > self.line_timeout:
            return f"a line was not complete within {self.line_timeout:g} s"
        if self.stream_since is not None and mono - self.stream_since > IDLE_TIMEOUT:
            return f"a batch was not complete within {IDLE_TIMEOUT:.0f} s"
        if self.unread_since is not None and mono - self.unread_since > IDLE_TIMEOUT:
            return f"answers were not read for {IDLE_TIMEOUT:.0f} s"
        if self.parked is None and not self.busy and mono - self.last_line > IDLE_TIMEOUT:
            return f"no complete line for {IDLE_TIMEOUT:.0f} s"
        return None
