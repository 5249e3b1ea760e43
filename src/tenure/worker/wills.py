"""What the supervisor is to say of a job in place of the process that ran it, and from when on it may have to.

Whatever a function does to its process, its time limit is kept: before it starts, the process writes down when that is
over, and the settlement that is to be sent then.  It has the place of the job's entry, in words of 8 bytes:

    0        tag of the receipt that it belongs to; 0: it is being written
    1        when the time limit is over, f64, seconds of the boot clock
    2        length of the packed settlement in bytes
    3..      the packed settlement, without its receipt
"""

from __future__ import annotations

from math import inf
from typing import Any

from tenure.codec import pack_value, unpack_value
from tenure.message import Settlement

WILL_WORDS = 128
_TEXT = 3
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
        self._words[base] = 0
        self._reals[base + 1] = limit
        self._words[base + 2] = len(packed)
        self._bytes[start : start + len(packed)] = packed
        self._words[base] = tag_of(receipt)

    def limit(self, index: int, tag: int) -> float:
        """Return when the time limit of the receipt with this tag is over; infinite where it has none."""
        base = self._first + index * WILL_WORDS
        return self._reals[base + 1] if self._words[base] == tag else inf

    def read(self, index: int, receipt: bytes) -> Settlement:
        """Return the settlement that was left for this receipt; its process is gone."""
        base = self._first + index * WILL_WORDS
        start = (base + _TEXT) * 8
        if self._words[base] != tag_of(receipt):
            raise LookupError(f"no will of {receipt!r} is here")
        kind, delay, reason, error = unpack_value(bytes(self._bytes[start : start + self._words[base + 2]]))
        return Settlement(receipt, kind, delay=delay, reason=reason, error=error)


def tag_of(receipt: bytes) -> int:
    """Return the tag of a receipt: never 0, and another one for every receipt that an entry will ever hold."""
    mixed = int(receipt[16:32], 16) + int(receipt[33:]) * 0x9E3779B97F4A7C15
    return (mixed & _MASK) or 1
