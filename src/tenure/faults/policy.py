"""What is to become of a connection's bytes: decisions only, no socket and no clock.

The proxy asks these objects and carries out what they say.  They are used on the proxy's own thread alone.  A new
kind of fault is a new `Script`, or one more order in `Orders`; the moving of bytes stays as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol


class Direction(enum.Enum):
    """Which way bytes go: a request to the server, or an answer back to the client."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the bytes that were offered.

    The first `forward` bytes go on, the next `swallow` bytes are thrown away.  What is left over is offered again
    after `wait` seconds (until then nothing more is read in this direction), or, where `wait` is None, together with
    the bytes that come next.  `cut` resets the connection once the forwarded bytes are written.
    """

    forward: int = 0
    swallow: int = 0
    wait: float | None = None
    cut: bool = False


class Script(Protocol):
    """Decides for one connection; one is made for each connection, so it may keep notes of its own."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Say what becomes of `data`, all that was read in this direction and is not judged yet."""


class PassAll:
    """The script that changes nothing."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Forward all of `data`."""
        return Verdict(forward=len(data))


@dataclass(slots=True)
class Orders:
    """What the proxy's verbs asked for and has not happened yet.

    `drops` answers are still to be swallowed and `accept_cuts` new connections are still to be reset; `swallowed`
    counts the answers that were.  `arming` grows with each `drop`, so that only requests sent after it count.
    """

    script: Callable[[], Script] = PassAll
    accept_cuts: int = 0
    drops: int = 0
    swallowed: int = 0
    arming: int = 0

    def clear(self) -> None:
        """Forget everything that was asked for."""
        self.accept_cuts = self.drops = 0

    def drop(self, count: int) -> None:
        """Swallow the answers to the next `count` requests."""
        self.drops = count
        self.arming += 1

    def opening(self) -> Literal["pass", "cut"]:
        """Say what becomes of a connection that was accepted just now."""
        if self.accept_cuts <= 0:
            return "pass"
        self.accept_cuts -= 1
        return "cut"


@dataclass(slots=True)
class Conversation:
    """One connection's script under the proxy's orders; `asked` is the arming under which a request was seen."""

    orders: Orders
    script: Script = field(init=False)
    asked: int = 0

    def __post_init__(self) -> None:
        self.script = self.orders.script()

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Swallow an answer where one is to be dropped, else do as the script says."""
        if self.orders.drops > 0:
            if direction is Direction.REQUEST:
                self.asked = self.orders.arming
            elif self.asked == self.orders.arming:
                self.orders.drops -= 1
                self.orders.swallowed += 1
                return Verdict(swallow=len(data), cut=True)
        return self.script.judge(direction, data)
