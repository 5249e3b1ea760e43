"""The SQLite file: opening, locking, transactions, and the small tables of names."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, Literal
from urllib.parse import quote

from tenure.errors import TenureError

SCHEMA_VERSION = 1
Durability = Literal["full", "normal"]


class StoreError(TenureError):
    """The data file cannot be used: taken by another server, foreign, damaged or of another version."""


class Store:
    """One connection to one data file; one transaction at a time, begun by the first write of a turn.

    `path` is a file's path or ":memory:".  `durability` is "full" (each commit is on disk before it is answered) or
    "normal" (it survives the death of the process, not that of the machine).  Raises StoreError.
    """

    def __init__(self, path: str, durability: Durability = "full") -> None:
        # The real path: a second name of the file (a link) must meet the same lock.
        self.path = path if path == ":memory:" else os.path.realpath(path)
        self._lock = None if path == ":memory:" else _FileLock(self.path + ".lock")
        try:
            self.db = _open(self.path, durability)
        except BaseException:
            self._release_lock()
            raise
        self.execute = self.db.execute
        self.executemany = self.db.executemany
        self.begun = False
        try:
            self.id = self._meta("store_id", secrets.token_hex(8))
            self._read_names()
        except sqlite3.Error as error:
            self.close()
            raise unusable(path, error) from None

    def _meta(self, name: str, fresh: str) -> str:
        self.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, fresh))
        value: str = self.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
        return value

    def _read_names(self) -> None:
        self.queue_ids: dict[str, int] = {name: id for id, name in self.execute("SELECT id, name FROM queues")}
        self.queue_names = {id: name for name, id in self.queue_ids.items()}
        self.worker_ids: dict[str, int] = {name: id for id, name in self.execute("SELECT id, name FROM workers")}
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
        id = self.execute(f"INSERT INTO {table} (name) VALUES (?)", (name,)).lastrowid
        assert id is not None  # an INSERT always has one
        ids[name] = id
        names[id] = name
        return id

    def begin(self) -> None:
        """Open the transaction, unless it is open already."""
        if not self.begun:
            self.execute("BEGIN IMMEDIATE")
            self.begun = True

    def commit(self) -> None:
        """Make the open transaction durable; raises sqlite3.Error with the transaction still open."""
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
        return self.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a question, or None."""
        found: tuple[Any, ...] | None = self.execute(sql, values).fetchone()
        return found

    def many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Carry out one statement for each row of values."""
        self.executemany(sql, values)

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it."""
        with contextlib.suppress(sqlite3.Error):  # a full disk must not keep the lock: the log is as good as the file
            if self.begun:
                self.rollback()
            if self.path != ":memory:":
                self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()


def unusable(path: str, error: sqlite3.Error) -> StoreError:
    """The error for a file that SQLite cannot read or write."""
    return StoreError(f"{path} cannot be used as a Tenure data file ({error}); name another with --data")


def connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection, one of several in this process, to a file that this process has for itself.

    SQLite then locks the file once and not in every transaction (its `unix-excl` file system layer), which a
    transaction of one small row gains a sixth from.  Autocommit mode: transactions are begun and ended by hand.  The
    connection may be used in another thread than this one, but in one at a time.
    """
    exclusive = "&vfs=unix-excl" if os.name == "posix" else ""
    address = f"file:{quote(path)}?mode={'ro' if read_only else 'rwc'}{exclusive}"
    return sqlite3.connect(
        path if path == ":memory:" else address,
        uri=path != ":memory:",
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _open(path: str, durability: Durability) -> sqlite3.Connection:
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise unusable(path, error) from None
    try:
        return _prepare(db, path, durability)
    except sqlite3.Error as error:
        db.close()
        raise unusable(path, error) from None
    except StoreError:
        db.close()
        raise


def _prepare(db: sqlite3.Connection, path: str, durability: Durability) -> sqlite3.Connection:
    """Look whose file it is before anything is written to it, then set it up; raises sqlite3.Error or StoreError."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    ours = version > 0 and tables >= {"meta", "jobs", "handouts"}  # other programs number their versions too
    if (tables or version) and not ours:
        raise StoreError(f"{path} is an SQLite file of another program; name another with --data")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has data version {version}, this Tenure knows up to {SCHEMA_VERSION}; start a newer Tenure on it"
        )
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA journal_size_limit = 67108864")
    if version == 0:
        schema = resources.files("tenure.engine").joinpath("schema.sql").read_text(encoding="utf-8")
        db.executescript(f"BEGIN; {schema} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    return db


class _FileLock:
    """Keeps a second server off the same file; the system lets go of it when the process ends, however it ends."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be made ({error.strerror}); name a writable place with --data") from None
        try:
            import fcntl  # not on Windows, where SQLite's own lock has to do

            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError:
            os.close(self._fd)
            raise StoreError(
                f"{path.removesuffix('.lock')} is in use by another tenure server; stop that one, or name another "
                "file with --data"
            ) from None

    def release(self) -> None:
        os.close(self._fd)
