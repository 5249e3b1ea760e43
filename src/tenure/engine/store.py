"""The SQLite file: opening, locking, transactions, and the small tables of names."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Literal
from urllib.parse import quote

import apsw

from tenure.engine.files import FileLock, StoreError, check_before, check_pages, emptied, torn_tail

SCHEMA_VERSION = 1
STEPS: dict[int, str] = {}
"""For each older version the statements that lead from it to the next one, each ended with a semicolon."""
Durability = Literal["full", "normal"]
TOGETHER = (1, 4, 16, 64, 256)
"""Rows that one statement changes, which takes little more than half of the time that a statement for each does.

Few sizes, because SQLite keeps a prepared statement for each; where there are fewer rows, the last one stands in.
"""
_WHERE_ID = {size: f"WHERE id IN ({', '.join('?' * size)})" for size in TOGETHER}
Db = apsw.Connection
DbError = apsw.Error
DbFull = apsw.FullError
"""SQLite's refusals, and the one for want of room.

The names are made here so that no other module has to know which driver opens the file.
"""
_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class Store:
    """One connection to one data file; one transaction at a time, begun by the first write of a turn.

    `path` is a file's path or ":memory:".  `durability` is "full" (each commit is on disk before it is answered) or
    "normal" (it survives the death of the process, not that of the machine).  `notices` is what was found and done at
    the opening that a person should know.  Raises StoreError.
    """

    def __init__(self, path: str, durability: Durability = "full") -> None:
        # The real path: a second name of the file (a link) must meet the same lock.
        self.path = path if path == ":memory:" else os.path.realpath(path)
        self._lock = None if path == ":memory:" else FileLock(self.path)
        try:
            self.db, self.notices = _open(self.path, self._lock)
        except BaseException:
            self._release_lock()
            raise
        # One cursor for all statements that return no rows: each of the others gets one of its own.
        self._cursor = self.db.cursor()
        self.execute = self._cursor.execute
        self.changes = self.db.changes
        self.begun = False
        try:
            self.id = self._meta("store_id", secrets.token_hex(8))
            self._read_names()
            if self._lock is not None:
                self._begin_log(self._lock)
            self.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        except DbError as error:
            self.close()
            raise unusable(path, error) from None

    def _begin_log(self, lock: FileLock) -> None:
        """Fold what was just made, so that the file itself says what it is, and begin the log with a write.

        From then on the log is never empty until it is folded at the end: a later start can tell that it was lost.
        """
        with contextlib.suppress(apsw.FullError):
            lock.mark(self.id)
            _fold(self.db, lock)
            self.execute("INSERT OR REPLACE INTO meta VALUES ('opened', ?)", (secrets.token_hex(8),))
            lock.note(log_in_use=True)

    def _meta(self, name: str, fresh: str) -> str:
        self.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, fresh))
        found = self.row("SELECT value FROM meta WHERE name = ?", (name,))
        assert found is not None  # inserted above
        value: str = found[0]
        return value

    def _read_names(self) -> None:
        self.queue_ids: dict[str, int] = {name: id for id, name in self.rows("SELECT id, name FROM queues")}
        self.queue_names = {id: name for name, id in self.queue_ids.items()}
        self.worker_ids: dict[str, int] = {name: id for id, name in self.rows("SELECT id, name FROM workers")}
        self.worker_names = {id: name for name, id in self.worker_ids.items()}

    def queue_id(self, name: str) -> int:
        """Return the number of a queue, giving it one (inside the transaction) when it is new."""
        found = self.queue_ids.get(name)
        return found if found is not None else self._number("queues", name, self.queue_ids, self.queue_names)

    def worker_id(self, name: str) -> int:
        """Return the number of a worker's name, giving it one (inside the transaction) when it is new."""
        found = self.worker_ids.get(name)
        return found if found is not None else self._number("workers", name, self.worker_ids, self.worker_names)

    def _number(self, table: str, name: str, ids: dict[str, int], names: dict[int, str]) -> int:
        self.begin()
        self.execute(f"INSERT INTO {table} (name) VALUES (?)", (name,))
        id = self.db.last_insert_rowid()
        ids[name] = id
        names[id] = name
        return id

    def begin(self) -> None:
        """Open the transaction, unless it is open already."""
        if not self.begun:
            self.execute("BEGIN IMMEDIATE")
            self.begun = True

    def commit(self) -> None:
        """Make the open transaction durable; raises DbError with the transaction still open."""
        self.execute("COMMIT")
        self.begun = False

    def rollback(self) -> None:
        """Undo the open transaction, and forget the names that it had given."""
        self.begun = False
        if self.db.in_transaction:  # some errors (a full disk) have rolled back already
            self.execute("ROLLBACK")
        self._read_names()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a question."""
        return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a question, or None."""
        found: tuple[Any, ...] | None = self.db.execute(sql, values).fetchone()
        return found

    def many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Carry out one statement for each row of values."""
        self.db.executemany(sql, values)

    def each(self, change: str, values: Sequence[Any], ids: Sequence[bytes]) -> None:
        """Carry out one change, which ends before its `WHERE`, alike on the rows of all these ids."""
        for at in range(0, len(ids), TOGETHER[-1]):
            part = list(ids[at : at + TOGETHER[-1]])
            size = next(size for size in TOGETHER if size >= len(part))
            part += part[-1:] * (size - len(part))
            self.execute(f"{change} {_WHERE_ID[size]}", (*values, *part))

    def insert(self, parts: tuple[str, str, str], rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows by as few statements as `TOGETHER` has sizes for; returns how many were not there yet.

        `parts`: what begins the statement, the places of a row, and what ends it.
        """
        before, at = self.db.total_changes(), 0
        while left := len(rows) - at:
            size = max(size for size in TOGETHER if size <= left)
            self.execute(_inserting(parts, size), [value for row in rows[at : at + size] for value in row])
            at += size
        return self.db.total_changes() - before

    def free_inside(self) -> int:
        """Bytes of the file that hold nothing any more and are written to before it grows."""
        free: int = self.db.pragma("freelist_count") * self.db.pragma("page_size")
        return free

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it."""
        with contextlib.suppress(DbError):  # a full disk must not keep the lock: the log is as good as the file
            if self.begun:
                self.rollback()
            if self._lock is not None:
                _fold(self.db, self._lock)
                keep_log(self.db, keep=self._lock.log_in_use)
        self.db.close()
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()


@lru_cache
def _inserting(parts: tuple[str, str, str], size: int) -> str:
    begin, places, end = parts
    return f"{begin} {', '.join([places] * size)} {end}"


def unusable(path: str, error: DbError) -> StoreError:
    """The error for a file that SQLite cannot read or write."""
    return StoreError(f"{path} cannot be used as a Tenure data file ({error}); name another with --data")


def connect(path: str, *, read_only: bool = False) -> Db:
    """Open a connection, one of several in this process, to a file that this process has for itself.

    SQLite then locks the file once and not in every transaction (its `unix-excl` file system layer), which a
    transaction of one small row gains a sixth from.  Autocommit mode: transactions are begun and ended by hand.  The
    connection may be used in another thread than this one, but in one at a time.
    """
    exclusive = "&vfs=unix-excl" if os.name == "posix" else ""
    address = f"file:{quote(path)}?mode={'ro' if read_only else 'rwc'}{exclusive}"
    flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if read_only else _READ_WRITE)
    return Db(path if path == ":memory:" else address, flags, statementcachesize=256)


def keep_log(db: Db, *, keep: bool = True) -> None:
    """Have the log left as it is when the last connection ends, be it by an accident; else SQLite removes it."""
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)


def copied(db: Db) -> Db:
    """Return a copy in memory, the caller's to close."""
    copy = connect(":memory:")
    with copy.backup("main", db, "main") as backup:
        backup.step()
    return copy


def _open(path: str, lock: FileLock | None) -> tuple[Db, list[str]]:
    """Open a file, `lock` being the one on it, or a database in memory; with it comes what is to be told."""
    if lock is not None:
        check_before(path, lock.marked, lock.log_in_use)
    try:
        db = connect(path)
        keep_log(db)
    except DbError as error:
        raise unusable(path, error) from None
    try:
        version = _look(db, path)
        if lock is not None and lock.marked and not version:
            raise emptied(path)
        notices = [] if lock is None else _fold_left_over(db, path, lock)
        _set_up(db)
        notices += _bring_to_date(db, path, version)
    except DbError as error:
        db.close()
        raise unusable(path, error) from None
    except StoreError:
        db.close()
        raise
    return db, notices


def _look(db: Db, path: str) -> int:
    """Look whose file it is before anything is written to it; returns its version, 0 for a new one."""
    version: int = db.pragma("user_version")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    ours = version > 0 and tables >= {"meta", "jobs", "handouts"}  # other programs number their versions too
    if (tables or version) and not ours:
        raise StoreError(f"{path} is an SQLite file of another program; name another with --data")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has data version {version}, this Tenure knows up to {SCHEMA_VERSION}; start a newer Tenure on it"
        )
    return version


def _fold_left_over(db: Db, path: str, lock: FileLock) -> list[str]:
    """Fold what a killed server left in the log, so that this one begins with none; returns what is to be told."""
    size: int = db.pragma("page_size")
    frames, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    frames = max(frames, 0)  # -1: there is no log
    check_pages(path, db.pragma("page_count"), frames, size)
    torn = torn_tail(path, frames, size)
    with contextlib.suppress(apsw.FullError):  # the log is as good as the file, and is folded once there is room
        _fold(db, lock)
    return [torn] if torn else []


def _fold(db: Db, lock: FileLock) -> None:
    """Fold the log into the file and empty it; raises DbError.

    That it is folded is on the disk before it is emptied, so that no start takes an emptied log for one that was lost.
    """
    frames, folded = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    if folded == frames:
        lock.note(log_in_use=False)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _set_up(db: Db) -> None:
    """Have what follows made as safely as can be; the durability that was asked for begins with the first job."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA journal_size_limit = 67108864")


def _bring_to_date(db: Db, path: str, version: int) -> list[str]:
    """Make the tables, or change those of an older version, in one transaction; returns what is to be told."""
    if version == SCHEMA_VERSION:
        return []
    steps = [STEPS[n] for n in range(version, SCHEMA_VERSION)] if version else [_schema()]
    try:
        db.execute(f"BEGIN IMMEDIATE; {' '.join(steps)} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;").fetchall()
    except DbError as error:
        raise StoreError(
            f"{path} could not be brought from data version {version} to {SCHEMA_VERSION} ({error}); nothing was "
            "changed. Start the Tenure that made it, or make room on its disk and start this one again"
        ) from None
    return [f"{path} was brought from data version {version} to {SCHEMA_VERSION}"] if version else []


def _schema() -> str:
    return resources.files("tenure.engine").joinpath("schema.sql").read_text(encoding="utf-8")
