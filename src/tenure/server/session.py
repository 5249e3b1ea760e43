"""One connection as the server sees it, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tenure.wire.commands import IDLE_TIMEOUT, LINE_TIMEOUT, Command, Hello, Take, Wait
from tenure.wire.parse import CommandParser


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
    """An answer is being made elsewhere; lines behind it wait in `held`, so that answers stay in order."""
    held: list[tuple[Command, float]] = field(default_factory=list)

    def feed(self, data: bytes, mono: float) -> list[Command]:
        """Take bytes that were read at `mono` and return the complete commands."""
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
        return commands

    def overdue(self, mono: float) -> str | None:
        """Why this connection is to be closed, or None.

        These limits bound how long after its writing a line can still arrive, which the rules for old lines build on.
        """
        if self.partial_since is not None and mono - self.partial_since > self.line_timeout:
            return f"a line was not complete within {self.line_timeout:g} s"
        if self.stream_since is not None and mono - self.stream_since > IDLE_TIMEOUT:
            return f"a batch was not complete within {IDLE_TIMEOUT:.0f} s"
        if self.parked is None and not self.busy and mono - self.last_line > IDLE_TIMEOUT:
            return f"no complete line for {IDLE_TIMEOUT:.0f} s"
        return None
