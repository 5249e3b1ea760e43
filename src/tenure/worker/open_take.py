"""The take that a worker process has open, as the process and its supervisor both see it.

A process that cannot run, because a task of it holds the interpreter or because it was stopped, reads no answer.  What
its open take is given meanwhile would be stranded until its leases ran out, and count a loss.  So the supervisor
revokes that take: it has the process give back whatever the take brings, and then has the broker give it to others.

Neither side waits for the other.  The process enters what came, and looks whether the take was revoked before it
starts any of it; the supervisor revokes, and looks at what was entered only at its next turn.  So what a process
starts is always seen here by the supervisor, and kept.
"""

from __future__ import annotations

FIRST_WORD = 18
"""Where its words are in a table: number, when it was written last (f64), revoked number, whether none may follow."""

_NUMBER, _WRITTEN_AT, _REVOKED, _LEAVING = range(FIRST_WORD, FIRST_WORD + 4)


class OpenTake:
    """The number of the take that is open, 0 where none is; each word has one writer."""

    def __init__(self, words: memoryview[int], reals: memoryview[float]) -> None:
        self._words = words
        self._reals = reals

    # The process's own verbs.

    def open(self, number: int, now: float) -> bool:
        """Note that a take of this number is to be written now; False when nothing is to be taken any more."""
        self._reals[_WRITTEN_AT] = now
        self._words[_NUMBER] = number
        if self._words[_LEAVING]:
            self._words[_NUMBER] = 0
            return False
        return True

    def is_revoked(self) -> bool:
        """Whether what it brings is to be given back; asked after that was entered, and before it starts."""
        return self._words[_NUMBER] != 0 and self._words[_REVOKED] == self._words[_NUMBER]

    def close(self) -> None:
        """Note that all that it has brought has been entered."""
        self._words[_NUMBER] = 0

    # The supervisor's verbs.

    def number(self) -> int:
        """Return its number; 0: none is open."""
        return self._words[_NUMBER]

    def written_at(self) -> float:
        """Return when it was written last, by the boot clock."""
        return self._reals[_WRITTEN_AT]

    def revoke(self, number: int) -> None:
        """Have the process give back what the take of this number brings, whenever it reads that."""
        self._words[_REVOKED] = number

    def forbid(self) -> None:
        """Have the process write no further take."""
        self._words[_LEAVING] = 1

    def is_forbidden(self) -> bool:
        """Whether the process is to write no further take."""
        return self._words[_LEAVING] != 0
