"""Ids of jobs: UUID version 7 as 32 lower-case hexadecimal digits, so that they sort by time.

Inside one process each id is greater than the one before, also within one millisecond and when the clock is set back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_FIELD = (1 << 74) - 1
"""The bits of a version 7 UUID that are neither time nor fixed."""


class Ids:
    """Makes ids; safe in threads.  `wall` is seconds since the epoch, `entropy(n)` gives n random bytes."""

    def __init__(self, wall: Callable[[], float] = time.time, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._wall = wall
        self._entropy = entropy
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a child has to after a fork: the parent goes on from the same number."""
        self._lock = threading.Lock()
        self._ms = 0
        self._field = 0

    def make(self) -> str:
        """Return a new id."""
        ms = int(self._wall() * 1000)
        chance = int.from_bytes(self._entropy(10), "big")
        with self._lock:
            if ms > self._ms:
                self._ms = ms
                # The top bit stays free, so that a busy millisecond has room to count up.
                self._field = (chance & _FIELD) >> 1
            else:
                self._field += 1 + (chance & 0xFFFFFFFF)
                if self._field > _FIELD:
                    self._ms += 1
                    self._field = (chance & _FIELD) >> 1
            ms, field = self._ms, self._field
        return f"{ms:012x}7{field >> 62:03x}{(field & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000:016x}"


_ids = Ids()
new_id = _ids.make

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.forget)
