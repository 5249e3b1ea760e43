"""What is to become of a connection's bytes: decisions only, no socket and no clock.

The proxy asks these objects and carries out what they say.  They are used on the proxy's own thread alone.  A new
kind of fault is a new `Script`, or one more order in `tenure.faults.orders`; the moving of bytes stays as it is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class Direction(enum.Enum):
    """Which way bytes go: a request to the server, or an answer back to the client."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the bytes that were offered.

    The first `forward` bytes go on, the next `swallow` bytes are thrown away.  What is left over is offered again
    after `wait` seconds (until then nothing more is read in this direction), or, where `wait` is None, together with
    the bytes that come next.  `cut` resets the connection once the forwarded bytes are written.  `orphan`: whoever
    sent them counts as gone; what it sent still goes on, and neither its end nor an error at its side does.
    """

    forward: int = 0
    swallow: int = 0
    wait: float | None = None
    cut: bool = False
    orphan: bool = False


class Script(Protocol):
    """Decides for one connection; one is made for each connection, so it may keep notes of its own."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Say what becomes of `data`, all that was read in this direction and is not judged yet."""


class PassAll:
    """The script that changes nothing."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Forward all of `data`."""
        return Verdict(forward=len(data))
