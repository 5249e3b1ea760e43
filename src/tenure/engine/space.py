"""How much more the data file can take in.

Below a reserve adds are refused, so that what is there already can be ended: a done, a retry or a bye writes too.
Below half of it nothing is handed out any more, for each hand-out has to be ended by a further write.  Pages that are
free inside of the file count like free space on its disk: the file never shrinks.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from pathlib import Path

from tenure.engine.store import Store

RESERVE = 8 * 1024 * 1024
"""Bytes that are kept free where nothing else was asked for."""
LOOK_EVERY = 0.1
"""Seconds after which the disk is looked at again: other programs write to it too."""
FULL_FOR = 0.5
"""Seconds for which nothing is free, whatever a look says, once a write has failed for want of room."""
LOOK_AFTER = 1024 * 1024
"""Bytes of adds after which it is looked at again, whatever the clock says."""
ADD_COSTS = 16 * 1024
"""Bytes that an add may need beside its body: pages of the table and of an index, in the log and in the file.

Its body is counted twice, for it is written to the one and then to the other.
"""
AGAIN = 1024 * 1024
"""Bytes above the reserve (an eighth of it at most) from which on adds are taken again."""
LOG_COSTS = 32 * 1024 * 1024
"""Bytes that the log may grow by when it is folded at leisure; with less to spare it has to be kept short."""


class Space:
    """What is free, as of the last look; sizes are bytes, times monotonic seconds.  In memory there is no limit."""

    def __init__(self, store: Store, reserve: int) -> None:
        self._store = store
        self._folder = None if store.path == ":memory:" else Path(store.path).parent
        self.reserve = reserve
        self.room: float = math.inf
        self.refusing = False
        """Adds are refused."""
        self.holding = False
        """Nothing is handed out."""
        self.tight = False
        """The log has to be kept short."""
        self.full = False
        """A write has just failed for want of room: adds are only looked up, and write nothing."""
        self._full_until = -math.inf
        self._budget: float = math.inf
        self._spent = 0
        self._next = -math.inf

    @property
    def wanted(self) -> int:
        """From where on adds are taken: once refused, not before some more is free, so that it does not flicker."""
        return self.reserve + (min(self.reserve // 8, AGAIN) if self.refusing else 0) + ADD_COSTS

    def look(self, mono: float) -> None:
        """Look at the disk if that is due; between two turns, when all that was spent has been written."""
        self.full = mono < self._full_until
        if self._folder is None or (mono < self._next and self._spent < LOOK_AFTER):
            return
        self._next = mono + LOOK_EVERY
        self._spent = 0
        with contextlib.suppress(OSError):  # then the last look has to do: a commit that fails is told in any case
            free = shutil.disk_usage(self._folder).free
            self.room = free + self._store.free_inside()
            self.tight = free < self.reserve + LOG_COSTS
        self.refusing = self.room < self.wanted
        self.holding = self.room < self.reserve // 2
        self._budget = self.room - self.reserve

    def fill(self, mono: float) -> None:
        """Take the store's word that nothing is free: somebody else has taken it since the last look."""
        self.full, self._full_until = True, mono + FULL_FOR
        self._next = -math.inf

    def refuses(self, size: int, jobs: int = 1) -> bool:
        """Whether bodies of that size together would eat into the reserve."""
        return self.full or self.refusing or self._spent + 2 * size + jobs * ADD_COSTS > self._budget

    def missing(self, size: int) -> tuple[int, int]:
        """What is left by now, and what would have to be for a body of that size."""
        return 0 if self.full else int(self.room - self._spent), max(self.wanted, self.reserve + 2 * size + ADD_COSTS)

    def spend(self, size: int, jobs: int = 1) -> None:
        """Take note of stored bodies."""
        self._spent += 2 * size + jobs * ADD_COSTS
