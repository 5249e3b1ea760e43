"""Scripts for the proxy."""

from __future__ import annotations

from collections import Counter

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
