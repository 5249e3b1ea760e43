"""The write-ahead log of a data file, folded into it when the owner says so and not by a commit."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from tenure.engine.files import FRAME_HEAD, LOG_HEAD
from tenure.engine.store import Db, Store, connect, keep_log

_PIECE = 1024 * 1024


class Log:
    """Watches the log of a store and turns SQLite's own checkpoints off; sizes are pages.

    A part is folded over a connection of its own, so that another thread can do it while the store is written to.
    """

    def __init__(self, store: Store) -> None:
        self._db = store.db
        self._path = store.path
        self._aside = connect(store.path)
        keep_log(self._aside)
        self._aside.pragma("synchronous", store.db.pragma("synchronous"))
        self._pages = 0
        self._folded = 0
        self._db.set_wal_hook(self._committed)  # takes the place of the one that makes checkpoints

    def _committed(self, db: Db, name: str, pages: int) -> int:
        if pages < self._pages:  # the log has started anew
            self._folded = 0
        self._pages = pages
        return apsw.SQLITE_OK

    @property
    def unfolded(self) -> int:
        """Pages that were written since the last pass."""
        return self._pages - self._folded

    def lengthen(self, pages: int) -> None:
        """Have room for so many pages in the log's file, as zeros, which SQLite takes for the log's end.

        A commit that need not lengthen the file is on the disk in half of the time.  Raises OSError.
        """
        frame = self._db.pragma("page_size") + FRAME_HEAD
        with Path(f"{self._path}-wal").open("r+b", buffering=0) as file:
            rest = LOG_HEAD + pages * frame - file.seek(0, os.SEEK_END)
            file.writelines(bytes(min(_PIECE, rest - at)) for at in range(0, rest, _PIECE))
            os.fsync(file.fileno())

    def fold_most(self) -> None:
        """Fold what is committed by now; from any thread.  Raises DbError."""
        self._aside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def fold_rest(self) -> None:
        """Fold all, between two turns: the log then starts anew, unless somebody reads it.  Raises DbError."""
        self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self.put_off()

    def put_off(self) -> None:
        """Count from here: the next pass is due after as much again."""
        self._folded = self._pages

    def save(self, path: str) -> None:
        """Copy all that is committed to a new file, wherever the store's own file is by now.  Raises DbError."""
        copy = connect(path)
        try:
            with copy.backup("main", self._db, "main") as backup:
                backup.step()
        finally:
            copy.close()

    def close(self) -> None:
        """Let go of the connection that folds."""
        self._aside.close()
