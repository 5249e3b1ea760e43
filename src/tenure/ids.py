"""Ids of jobs: UUID version 7 as 32 lower-case hexadecimal digits, so that they sort by time.

Inside one process each id is greater than the one before, also within one millisecond and when the clock is set back.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

_TIME = 80
"""Below the milliseconds there are so many bits: 4 of version, 12 that count for chance, 2 of variant, 62 to count."""
_FIXED = 7 << 76 | 2 << 62
_LOW = (1 << 61) - 1
"""Of the bits to count with the top one stays free at first, so that a busy millisecond has room to count up."""
_SPILT = 1 << 62
"""Set, beside the variant's own bit, once the counting has left its bits."""


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
        self._last = 0

    def make(self) -> str:
        """Return a new id."""
        moment = int(self._wall() * 1000) << _TIME
        chance = self._bits(73)
        with self._lock:
            if moment > self._last:
                last = _in_millisecond(moment, chance)
            else:
                last = self._last + 1 + (chance & 0xFFFFFFFF)
                if last & _SPILT:
                    last = _in_millisecond(((last >> _TIME) + 1) << _TIME, chance)
            self._last = last
        return last.to_bytes(16, "big").hex()


def _in_millisecond(moment: int, chance: int) -> int:
    return moment | _FIXED | chance >> 61 << 64 | chance & _LOW


def _seeded() -> Callable[[int], int]:
    return random.Random(os.urandom(32)).getrandbits  # noqa: S311  (see above: no secret)


_ids = Ids()
new_id = _ids.make

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.forget)
