"""Folding the write-ahead log into the data file beside the loop, so that no answer waits for the disk's slow part.

SQLite's own checkpoint is made by whichever commit fills the log, and that commit waits for two syncs.  Here a thread
folds the most of the log while the loop goes on; only what was appended meanwhile is folded between two turns, after
which the log starts anew.  No answer depends on it: what is committed is in the log, which is as good as the file.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import Future, ThreadPoolExecutor

from tenure.engine.log import Log
from tenure.engine.store import DbError

STEP = 2_000
"""Pages of log (4 KiB each) after which it is folded."""
LIMIT = 3 * STEP
"""Pages of unfolded log at which the loop waits for the thread, so that the log cannot outgrow a slow disk."""
SHORT = 256
"""Pages of log after which it is folded at once where the disk is nearly full: a short log needs no new room."""

log = logging.getLogger("tenure.server")


class Checkpoints:
    """Looked at after each turn; `step` and `limit` are pages.  `log` is None for an engine in memory."""

    def __init__(self, log: Log | None, step: int = STEP, limit: int = LIMIT) -> None:
        self._log = log
        self._step = step
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._under_way: Future[None] | None = None

    def make_room(self) -> None:
        """Have the log as long from the start as it gets by and by: each commit is on the disk sooner for it."""
        if self._log is not None:
            try:
                self._log.lengthen(self._step + self._step // 2)
            except OSError as error:
                log.warning("the log could not be given its room ahead, which makes commits slower: %s", error)

    def look(self, tight: bool = False) -> None:
        """Begin a pass when enough has been written, and end one that the thread is done with.

        `tight`: there is little room for the log to grow.
        """
        if self._log is None:
            return
        unfolded = self._log.unfolded
        if tight and unfolded >= SHORT:
            self._end(self._log, self._under_way)
            return
        if self._under_way is None:
            if unfolded >= self._step:
                self._under_way = self._thread.submit(self._log.fold_most)
        elif self._under_way.done() or unfolded >= self._limit:
            self._end(self._log, self._under_way)

    def _end(self, written: Log, under_way: Future[None] | None) -> None:
        self._under_way = None
        try:
            if under_way is not None:
                with contextlib.suppress(DbError):  # as where a commit held a lock just then: all is folded here
                    under_way.result()
            written.fold_rest()
        except DbError as error:
            log.error("the log could not be folded into the data file, which is tried again later: %s", error)
            written.put_off()

    def close(self) -> None:
        """Wait for a pass that is under way; the store folds the rest when it is closed."""
        self._thread.shutdown()
