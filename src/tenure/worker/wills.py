"""When a job is to end, and what the supervisor is to say of it in place of the process that it has to end for that.

Whatever a function does to its process, its time limit is kept: before it starts, the process writes down when that is
over, and the settlement that is to be sent then.  It has the place of the job's entry, in words of 8 bytes:

    0        tag of the receipt that it belongs to; 0: it is being written
    1        when the time limit is over, f64, seconds of the boot clock
    2        length of the packed settlement in bytes
    3        the supervisor's: tag of a receipt whose job is to be terminated
    4        the supervisor's: since when, f64, seconds of the boot clock
    5..      the packed settlement, without its receipt
"""

from __future__ import annotations

from math import inf
from typing import Any

from tenure.codec import pack_value, unpack_value
from tenure.message import Settlement
from tenure.settle import TERMINATED

WILL_WORDS = 128
"""Words of 8 bytes for each entry."""

_TAG, _LIMIT, _LENGTH, _TERMINATE, _SINCE, _TEXT = 0, 1, 2, 3, 4, 5
_MASK = (1 << 64) - 1


class Wills:
    """The wills of all entries of a table, seen from either side; the views are the table's."""

    def __init__(self, data: Any, words: Any, reals: Any, first: int) -> None:
        self._bytes = data
        self._words = words
        self._reals = reals
        self._first = first

    def write(self, index: int, receipt: bytes, limit: float, settlement: Settlement) -> None:
        """Leave the settlement of this receipt, for after its `limit` (the process's side)."""
        packed = pack_value([settlement.kind, settlement.delay, settlement.reason, settlement.error])
        if len(packed) > (WILL_WORDS - _TEXT) * 8:
            raise ValueError(f"a will of {len(packed)} bytes; the limit is {(WILL_WORDS - _TEXT) * 8}")
        base = self._first + index * WILL_WORDS
        start = (base + _TEXT) * 8
        self._words[base + _TAG] = 0
        self._reals[base + _LIMIT] = limit
        self._words[base + _LENGTH] = len(packed)
        self._bytes[start : start + len(packed)] = packed
        self._words[base + _TAG] = tag_of(receipt)

    def terminated(self, index: int, tag: int) -> bool:
        """Whether the job of the receipt with this tag is to be terminated."""
        found: int = self._words[self._first + index * WILL_WORDS + _TERMINATE]
        return found == tag

    def terminated_at(self, index: int, tag: int) -> float:
        """Return since when it is to be; infinite where it is not."""
        since: float = self._reals[self._first + index * WILL_WORDS + _SINCE]
        return since if self.terminated(index, tag) else inf

    def terminate(self, index: int, tag: int, now: float) -> None:
        """Have the job of the receipt with this tag terminated, from now on (the supervisor's side)."""
        if not self.terminated(index, tag):
            base = self._first + index * WILL_WORDS
            self._reals[base + _SINCE] = now
            self._words[base + _TERMINATE] = tag

    def limit(self, index: int, tag: int) -> float:
        """Return when the receipt with this tag has or had to end; infinite where it need not."""
        base = self._first + index * WILL_WORDS
        limit = self._reals[base + _LIMIT] if self._words[base + _TAG] == tag else inf
        return min(limit, self._reals[base + _SINCE]) if self._words[base + _TERMINATE] == tag else limit

    def read(self, index: int, receipt: bytes) -> Settlement:
        """Return the settlement that is to be sent for this receipt; its process is gone."""
        tag = tag_of(receipt)
        if self.terminated(index, tag):
            return Settlement(receipt, "cancel", reason=TERMINATED)
        base = self._first + index * WILL_WORDS
        start = (base + _TEXT) * 8
        if self._words[base + _TAG] != tag:
            raise LookupError(f"no will of {receipt!r} is here")
        kind, delay, reason, error = unpack_value(bytes(self._bytes[start : start + self._words[base + _LENGTH]]))
        return Settlement(receipt, kind, delay=delay, reason=reason, error=error)


def tag_of(receipt: bytes) -> int:
    """Return the tag of a receipt: never 0, and another one for every receipt that an entry will ever hold."""
    mixed = int(receipt[16:32], 16) + int(receipt[33:]) * 0x9E3779B97F4A7C15
    return (mixed & _MASK) or 1
