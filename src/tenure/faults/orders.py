"""What the proxy's verbs asked for, and what that means for the bytes of one connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from tenure.faults.policy import Direction, PassAll, Script, Verdict

LOOK = 0.01
"""Seconds between two looks whether a request that was held back has been repeated and answered meanwhile."""
KNOWN_BY = 512
"""Bytes at the beginning of a request by which its repeat is recognised."""
SLICE = 0.02
"""Seconds' worth of bytes that a slow line lets through at once."""


@dataclass(slots=True, eq=False)
class Tear:
    """The order to reset the first connection on which `after` more bytes went in `direction`."""

    after: int
    direction: Direction


@dataclass(slots=True, eq=False)
class Slow:
    """The order for a slow line: seconds that all bytes wait, or bytes that get through in a second; 0 for none."""

    figure: float


@dataclass(slots=True, eq=False)
class Held:
    """A request that is held back: until `due`, and then its connection is for its delivery only."""

    beginning: bytes
    seconds: float | None
    due: bool = False
    released: bool = False


@dataclass(slots=True)
class Orders:
    """What the proxy's verbs asked for and has not happened yet.

    `drops` answers are still to be swallowed and `accept_cuts` new connections are still to be reset; `swallowed`
    counts the answers that were.  `arming` grows with each `drop`, so that only requests sent after it count.
    `holds` requests are still to be held back, each for `hold_seconds` (None: until it was repeated and answered);
    `held` are those that wait, the latest few.
    """

    script: Callable[[], Script] = PassAll
    accept_cuts: int = 0
    drops: int = 0
    swallowed: int = 0
    arming: int = 0
    tear: Tear | None = None
    holds: int = 0
    hold_seconds: float | None = None
    held: deque[Held] = field(default_factory=lambda: deque(maxlen=64))
    delays: dict[Direction, Slow] = field(default_factory=dict)
    rates: dict[Direction, Slow] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything that was asked for; what is held back is due."""
        self.accept_cuts = self.drops = self.holds = 0
        self.tear = None
        self.delays.clear()
        self.rates.clear()
        for held in self.held:
            held.due = True
        self.held.clear()

    def drop(self, count: int) -> None:
        """Swallow the answers to the next `count` requests."""
        self.drops = count
        self.arming += 1

    def dropping(self, asked: int) -> bool:
        """Tell whether an answer is to be swallowed whose request came under the arming `asked`, and count it."""
        if self.drops <= 0 or asked != self.arming:
            return False
        self.drops -= 1
        self.swallowed += 1
        return True

    def hold(self, count: int, seconds: float | None) -> None:
        """Hold the next `count` requests back."""
        self.holds, self.hold_seconds = count, seconds

    def delay(self, direction: Direction) -> float:
        """Return how many seconds bytes in `direction` have to wait."""
        return self.delays[direction].figure if direction in self.delays else 0.0

    def rate(self, direction: Direction) -> float:
        """Return how many bytes get through in a second in `direction`, 0 for all."""
        return self.rates[direction].figure if direction in self.rates else 0.0

    def opening(self) -> Literal["pass", "cut"]:
        """Say what becomes of a connection that was accepted just now."""
        if self.accept_cuts <= 0:
            return "pass"
        self.accept_cuts -= 1
        return "cut"

    def holding(self, request: bytes) -> Held | None:
        """Return what a request is to be held back by, None when it may go on."""
        if self.holds <= 0:
            return None
        self.holds -= 1
        held = Held(request[:KNOWN_BY], self.hold_seconds)
        self.held.append(held)
        return held

    def release(self, held: Held) -> None:
        """Note that a request is on its way, late."""
        held.released = True
        if held in self.held:
            self.held.remove(held)

    def repeated(self, request: bytes) -> Held | None:
        """Return what is held back and is sent again with this request."""
        return next((held for held in self.held if held.beginning in request), None)


@dataclass(slots=True)
class Line:
    """How far bytes have come on a line that may be slow, in one direction; both counts are bytes of those offered."""

    rested: int = 0
    arrived: int = 0

    def delayed(self, size: int, delay: float) -> bool:
        """Tell whether bytes among the `size` that are offered have to wait for `delay` seconds first."""
        new = size > self.rested
        self.rested = size
        return new and delay > 0

    def advance(self, size: int, rate: float) -> float | None:
        """Let bytes arrive; return the seconds until the next may, None where none is held up."""
        if not rate:
            self.arrived = size
            return None
        count = min(size - self.arrived, max(1, int(rate * SLICE)))
        self.arrived += count
        return count / rate if count else None

    def used(self, count: int) -> None:
        """Note that the first `count` bytes are offered no more."""
        self.rested -= count
        self.arrived -= count


@dataclass(slots=True)
class Conversation:
    """One connection's script under the proxy's orders.

    `asked` is the arming under which a request was seen, `held` its request that is held back, `repeats` a request of
    another connection that was sent again on this one, and `passed` counts the bytes since `tear` was ordered.
    """

    orders: Orders
    script: Script = field(init=False)
    asked: int = 0
    held: Held | None = None
    repeats: Held | None = None
    tear: Tear | None = None
    passed: int = 0
    lines: dict[Direction, Line] = field(default_factory=lambda: {direction: Line() for direction in Direction})

    def __post_init__(self) -> None:
        self.script = self.orders.script()

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Do what was ordered for these bytes, else as the script says."""
        self._note(direction, data)
        if self.held is not None:
            return self._late(self.held, direction, data)
        if direction is Direction.ANSWER and self.orders.dropping(self.asked):
            return Verdict(swallow=len(data), cut=True)
        return self._slow(direction, data)

    def _note(self, direction: Direction, data: bytes) -> None:
        """Keep in mind what was asked, and that what was asked again has its answer."""
        if direction is Direction.ANSWER and self.repeats is not None:
            self.repeats.due = True
            self.repeats = None
        elif direction is Direction.REQUEST and self.held is None:
            self.asked = self.orders.arming
            self.repeats = self.orders.repeated(data) or self.repeats
            self.held = self.orders.holding(data)

    def _late(self, held: Held, direction: Direction, data: bytes) -> Verdict:
        """Hold the request until it is due; deliver it then, whatever became of its client, and swallow the answer."""
        if direction is Direction.ANSWER:
            return Verdict(swallow=len(data), cut=True) if held.released else Verdict(forward=len(data))
        if held.due:
            self.orders.release(held)
            return Verdict(forward=len(data), orphan=True)
        if held.seconds is None:
            return Verdict(wait=LOOK)
        held.due = True
        return Verdict(wait=held.seconds)

    def _slow(self, direction: Direction, data: bytes) -> Verdict:
        """Show the script what has come over the line so far."""
        line, delay = self.lines[direction], self.orders.delay(direction)
        if line.delayed(len(data), delay):
            return Verdict(wait=delay)
        pause = line.advance(len(data), self.orders.rate(direction))
        verdict = self.script.judge(direction, data[: line.arrived])
        line.used(verdict.forward + verdict.swallow)
        if pause is not None:
            verdict = replace(verdict, wait=max(pause, verdict.wait or 0.0))
        return self._torn(direction, verdict)

    def _torn(self, direction: Direction, verdict: Verdict) -> Verdict:
        """Let no more bytes through than a tear allows."""
        tear = self.orders.tear
        if tear is None or tear.direction is not direction:
            return verdict
        if self.tear is not tear:
            self.tear, self.passed = tear, 0
        self.passed += verdict.forward
        if self.passed < tear.after:
            return verdict
        self.orders.tear = None
        return Verdict(forward=verdict.forward - (self.passed - tear.after), cut=True)
