"""The data file as bytes: what is seen of it before and while SQLite opens it, and what a person is told.

SQLite takes a missing or an empty file for a new one and ignores what a killed process left behind the last commit of
the write-ahead log.  Both are right, and neither must go unsaid.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from tenure.errors import TenureError

_MAGIC = b"SQLite format 3\x00"
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
LOG_HEAD = 32
FRAME_HEAD = 24
_NEVER_WRITTEN = 1 << 30
"""The byte whose page SQLite keeps for its locks."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether the file is still where it was opened."""
_ROUNDS = 1 << 20
"""The log is written from its begin again and again, each time with a salt one higher: older ones are left-overs."""


class StoreError(TenureError):
    """The data file cannot be used: taken by another server, foreign, damaged or of another version."""


def check_before(path: str, was_here: bool, log_in_use: bool) -> None:
    """See that neither the file nor its log is gone or cut short; raises StoreError.

    `was_here`: it held data at an earlier start.  `log_in_use`: the last server did not live to fold its log.
    """
    size, log = _size(path), _size(f"{path}-wal")
    if size:
        _check_length(path, size, log)
        if log_in_use:
            _check_log(path, log)
        return
    what = "empty" if size == 0 else "gone"
    if log:
        raise StoreError(
            f"{path} is {what}, but its log {path}-wal is there; put the file back beside it, or remove the log to "
            "begin with no jobs"
        )
    if was_here:
        raise StoreError(
            f"{path} has been a Tenure data file and is {what} now; put it back, or remove {path}.lock to begin with "
            "no jobs"
        )
    if log == 0:
        raise StoreError(
            f"{path} is {what} and its log {path}-wal is empty, as no server leaves them; put both back, or remove the "
            "log to begin with no jobs"
        )


def _check_log(path: str, size: int | None) -> None:
    """See that the log of a server that was killed is there: it began with a write and was never empty after that."""
    head = b""
    if size:
        with Path(f"{path}-wal").open("rb") as file:
            head = file.read(LOG_HEAD)
    if len(head) < LOG_HEAD or head[:4] not in _LOG_MAGICS:
        what = "gone" if size is None else "empty" if not size else "no log"
        raise StoreError(
            f"{path}-wal is {what}, and the last server on {path} was killed before it had folded its log into the "
            f"file; put the log back, or remove {path}.lock to go on with what the file alone has"
        )


def emptied(path: str) -> StoreError:
    """The error for a file without a table that had ours at an earlier start."""
    return StoreError(
        f"{path} has been a Tenure data file and has nothing in it now; put a whole copy of it in its place, or remove "
        f"{path} and {path}.lock to begin with no jobs"
    )


def _check_length(path: str, size: int, log: int | None) -> None:
    try:
        with Path(path).open("rb") as file:
            head = file.read(100)
    except OSError:  # a folder, or no right to read it: SQLite says so in its words
        return
    page = _number(head[16:18])
    wanted = _number(head[28:32]) * (65_536 if page == 1 else page)
    if not log and head.startswith(_MAGIC) and size < wanted:  # else the log may hold the rest: see `check_pages`
        raise _cut_short(path, size, wanted)


def check_pages(path: str, pages: int, frames: int, page: int) -> None:
    """See that every page that the file lacks is in the log, whose first `frames` frames hold; raises StoreError.

    `pages` is how many there are in all, `page` the bytes of each.
    """
    size = _size(path) or 0
    lacking = set(range(size // page + 1, pages + 1)) - {_NEVER_WRITTEN // page + 1}
    if lacking - (_pages_in(f"{path}-wal", frames, page) if frames else set()):
        raise _cut_short(path, size, pages * page)


def _pages_in(log: str, frames: int, page: int) -> set[int]:
    found = set()
    with Path(log).open("rb") as file:
        for frame in range(frames):
            file.seek(LOG_HEAD + frame * (page + FRAME_HEAD))
            found.add(_number(file.read(4)))
    return found


def _cut_short(path: str, size: int, wanted: int) -> StoreError:
    return StoreError(
        f"{path} is cut short: {size} bytes of {wanted} are there; put a whole copy of it in its place, or name "
        "another with --data"
    )


def torn_tail(path: str, frames: int, page: int) -> str | None:
    """What is to be said of a log that goes on behind its last commit; None when nothing is.

    `frames` is how many frames SQLite takes for committed, `page` the bytes of a page.  Zeros are room for later ones.
    """
    log, frame = f"{path}-wal", page + FRAME_HEAD
    end = LOG_HEAD + frames * frame
    rest = (_size(log) or 0) - end
    if rest <= -LOG_HEAD or (rest <= 0 and frames):
        return None
    with Path(log).open("rb") as file:
        head = file.read(LOG_HEAD)
        file.seek(end)
        following = file.read(FRAME_HEAD)
    if len(head) == LOG_HEAD and head[:4] in _LOG_MAGICS:
        whole = rest % frame == 0
        if whole and (not rest or following == bytes(FRAME_HEAD) or _is_left_over(head[16:20], following[8:12])):
            return None
    return (
        f"{log}: what stands behind the last commit, from byte {end} on, is no whole transaction (a write that was cut "
        "off); it is ignored"
    )


def _is_left_over(salt: bytes, other: bytes) -> bool:
    """Whether a frame belongs to an earlier round of the log, which SQLite writes over in time."""
    return 0 < (_number(salt) - _number(other)) % (1 << 32) < _ROUNDS


def _number(word: bytes) -> int:
    return int.from_bytes(word, "big")


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return None


class Place:
    """Notices that a data file or its log, in use here, was removed or replaced by another file of its name.

    SQLite itself writes on into what it has opened, where no later start would find it.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        names = (self.path, f"{self.path}-wal")
        self._known = {name: known for name in names if (known := _identity(name)) is not None}
        self._next = -math.inf

    def look(self, mono: float) -> str | None:
        """Say what has happened, or None; looks once in LOOK_EVERY.  `mono`: monotonic seconds."""
        if mono < self._next:
            return None
        self._next = mono + LOOK_EVERY
        for name, known in self._known.items():
            try:
                now = _identity(name)
            except OSError:  # it cannot be looked at just now, which says nothing about the file
                continue
            if now != known:
                return f"{name} was {'removed' if now is None else 'replaced by another file'}"
        return None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)  # noqa: PTH116  (a Path for each look costs more than the look)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_dev, seen.st_ino


_IN_USE, _FOLDED = b"log in use\n", b"log folded\n"  # of one length: one is written over the other


class FileLock:
    """Keeps a second server off the same file; the system lets go of it when the process ends, however it ends.

    The lock's own file keeps a mark that the data file has been made: `marked` tells whether it is there.  Beside it
    stands whether jobs may be in the log alone: `log_in_use`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = self._open(path + ".lock")
        try:
            import fcntl  # not on Windows, where SQLite's own lock has to do

            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError:
            os.close(self._fd)
            raise StoreError(
                f"{path} is in use by another tenure server; stop that one, or name another file with --data"
            ) from None
        text = os.read(self._fd, 100)
        self._id, _, state = text.partition(b"\n")
        self.marked = bool(text)
        self.log_in_use = state == _IN_USE

    def _open(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            folder = Path(path).parent
            raise StoreError(f"the folder {folder} is not there; make it, or name another place with --data") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be made ({error.strerror}); name a writable place with --data") from None

    def mark(self, id: str) -> None:
        """Note that the data file has been made, by its store's id, and that nothing is in its log."""
        self._id = id.encode()
        self.note(log_in_use=False)

    def note(self, *, log_in_use: bool) -> None:
        """Note on the disk whether jobs may be in the log alone, if the data file has been made.

        A full disk may keep it from being noted, which does no harm: then less is noticed at the next start.
        """
        if not self._id:
            return
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, self._id + b"\n" + (_IN_USE if log_in_use else _FOLDED), 0)
            os.fsync(self._fd)
            self.marked, self.log_in_use = True, log_in_use

    def release(self) -> None:
        os.close(self._fd)
