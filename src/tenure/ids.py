"""Ids of jobs: UUID version 7 as 32 lower-case hexadecimal digits, so that they sort by time.

Inside one process each id is greater than the one before, also within one millisecond and when the clock is set back.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

_FIELD = (1 << 74) - 1
"""The bits of a version 7 UUID that are neither time nor fixed."""


class Ids:
    """Makes ids; safe in threads.  `wall` is seconds since the epoch, `seed()` gives a function of n for n random bits.

    The bits need not be secret, only different everywhere; so a generator that is seeded by the system gives them,
    which spares a system call for each id.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, seed: Callable[[], Callable[[int], int]] | None = None
    ) -> None:
        self._wall = wall
        self._seed = seed or _seeded
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a child has to after a fork: the parent goes on from the same number."""
        self._lock = threading.Lock()
        self._bits = self._seed()
        self._ms = 0
        self._field = 0

    def make(self) -> str:
        """Return a new id."""
        ms = int(self._wall() * 1000)
        chance = self._bits(74)
        with self._lock:
            if ms > self._ms:
                self._ms = ms
                # The top bit stays free, so that a busy millisecond has room to count up.
                self._field = chance >> 1
            else:
                self._field += 1 + (chance & 0xFFFFFFFF)
                if self._field > _FIELD:
                    self._ms += 1
                    self._field = chance >> 1
            ms, field = self._ms, self._field
        # With `%`, which is faster here than an f-string.
        return "%012x7%03x%016x" % (ms, field >> 62, (field & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000)  # noqa: UP031


def _seeded() -> Callable[[int], int]:
    return random.Random(os.urandom(32)).getrandbits  # noqa: S311  (see above: no secret)


_ids = Ids()
new_id = _ids.make

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.forget)
