"""Scripts for the proxy."""

from __future__ import annotations

import threading
from collections import Counter

from tenure.clock import boot
from tenure.faults import Direction, Verdict

VERBS = (b"hello", b"add", b"take", b"done", b"retry", b"release", b"extend", b"bye")


class LosesAnswers:
    """Swallows the first `times` answers to each of the verbs, and cuts the connection each time."""

    def __init__(self, times: int, *verbs: bytes) -> None:
        self.times = times
        self.verbs = verbs or VERBS
        self.lost: Counter[bytes] = Counter()

    def __call__(self) -> _Line:
        return _Line(self)


class _Line:
    def __init__(self, of: LosesAnswers) -> None:
        self._of = of
        self._verb = b""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        if direction is Direction.REQUEST:
            self._verb = data.partition(b" ")[0]
        elif self._verb in self._of.verbs and self._of.lost[self._verb] < self._of.times:
            self._of.lost[self._verb] += 1
            return Verdict(swallow=len(data), cut=True)
        return Verdict(forward=len(data))


class Tears:
    """Cuts the connection of the next line of a verb behind a byte of that line, or behind a byte of its answer."""

    def __init__(self) -> None:
        self._order: tuple[bytes, Direction, int] | None = None
        self._lock = threading.Lock()

    def arm(self, verb: bytes, direction: Direction, after: int) -> None:
        """Cut the next line of `verb`, or its answer, once `after` bytes of it have been passed on."""
        with self._lock:
            self._order = verb, direction, after

    def disarm(self) -> bool:
        """Forget the order; False when it was carried out."""
        with self._lock:
            order, self._order = self._order, None
        return order is not None

    def order_for(self, data: bytes) -> tuple[Direction, int] | None:
        """Return what is to be cut where `data` begins a line of the verb."""
        with self._lock:
            if self._order is None or not data.startswith(self._order[0] + b" "):
                return None
            return self._order[1:]

    def __call__(self) -> _Torn:
        return _Torn(self)


class _Torn:
    """One connection: a request begins where the last bytes that passed were an answer, for one is sent at a time."""

    def __init__(self, of: Tears) -> None:
        self._of = of
        self._cut: tuple[Direction, int] | None = None
        self._before = Direction.ANSWER
        self._passed = 0

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        if direction is not self._before:
            self._before = direction
            self._passed = 0
            if direction is Direction.REQUEST:
                self._cut = self._of.order_for(data)
        if self._cut is None or direction is not self._cut[0] or self._passed + len(data) < self._cut[1]:
            self._passed += len(data)
            return Verdict(forward=len(data))
        self._of.disarm()
        return Verdict(forward=self._cut[1] - self._passed, cut=True)


class Hears:
    """Passes everything through, and keeps when (boot clock) which lines of some verbs went to the server."""

    def __init__(self, *verbs: bytes) -> None:
        self._verbs = tuple(verb + b" " for verb in verbs)
        self.lines: list[tuple[float, bytes]] = []

    def __call__(self) -> Hears:
        return self

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Keep the lines of these verbs; a line comes in one piece here."""
        if direction is Direction.REQUEST:
            self.lines += [(boot(), line) for line in data.split(b"\n") if line.startswith(self._verbs)]
        return Verdict(forward=len(data))
