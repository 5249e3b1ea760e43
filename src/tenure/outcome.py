"""What an execution came to, as frozen data, and an exception turned into text that can be stored.

The worker makes one `Outcome` for each hand-out that it starts; what becomes of the job is decided from it elsewhere.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass

MAX_FAILURE_BYTES = 16 * 1024
"""Upper limit in UTF-8 bytes for a failure's three texts together."""

MAX_CLASS_CHARS = 512
MAX_TEXT_CHARS = 4096
MAX_FRAMES = 50


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as three plain texts; together they have at most 16 KiB of UTF-8.

    `kind` is the class's path (`shop.jobs.NoStock`), `text` what the exception says, `traceback` the frames with the
    newest last.  Control characters, NUL and lone surrogates are stored as escapes (`\\x00`, `\\udc80`).
    """

    kind: str
    text: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned; `result` is its packed value, or None when there is none to keep."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """This worker has no task of that name; another one may."""

    name: str


@dataclass(frozen=True, slots=True)
class Newer:
    """The message is of a newer layout than this worker reads; another one may read it."""

    version: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The message can never run: its bytes do not decode, or its arguments do not fit the function."""

    why: str


Outcome = Returned | Failed | UnknownTask | Newer | Broken


def failure_from(error: BaseException) -> Failure:
    """Turn an exception into a `Failure`; never raises, whatever the exception's own methods do."""
    kind = escape(_kind_of(error))[:MAX_CLASS_CHARS]
    text = shorten(escape(_text_of(error)), MAX_TEXT_CHARS)
    left = MAX_FAILURE_BYTES - _size(kind) - _size(text)
    return Failure(kind, text, _fit(escape(_traceback_of(error)), left))


def escape(text: str) -> str:
    """Return the text with everything that a terminal or UTF-8 cannot take written as an escape."""
    if text.isprintable():
        return text
    return "".join(ch if ch in "\n\t" or not _needs_escape(ch) else _escaped(ch) for ch in text)


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text of more than `limit` characters, saying how much is missing."""
    if len(text) <= limit:
        return text
    note = f"... [{len(text) - limit} characters left out] ..."
    half = max(0, (limit - len(note)) // 2)
    return text[:half] + note + text[len(text) - half :]


def _needs_escape(ch: str) -> bool:
    return ch < " " or "\x7f" <= ch <= "\x9f" or "\ud800" <= ch <= "\udfff"


def _escaped(ch: str) -> str:
    return f"\\x{ord(ch):02x}" if ord(ch) < 0x100 else f"\\u{ord(ch):04x}"


def _size(text: str) -> int:
    return len(text.encode())


def _fit(text: str, limit: int) -> str:
    """Shorten to `limit` bytes of UTF-8; keeps both ends, since the last frames tell most."""
    while _size(text) > limit:
        text = shorten(text, max(0, len(text) * limit // _size(text) - 100))
        if len(text) <= 200:
            return ""
    return text


def _kind_of(error: BaseException) -> str:
    try:
        kind = type(error)
        module, name = str(kind.__module__), str(kind.__qualname__)
    except BaseException:  # noqa: BLE001  (a metaclass may do anything at all)
        return "an exception whose class has no name"
    return name if module == "builtins" else f"{module}.{name}"


def _text_of(error: BaseException) -> str:
    try:
        # Cut before the escapes: a text of a gigabyte would become several.
        return shorten(str.__str__(str(error)), 4 * MAX_TEXT_CHARS)
    except BaseException as fault:  # noqa: BLE001
        return f"<its text could not be made: {type(fault).__name__}>"


def _traceback_of(error: BaseException) -> str:
    """Return the frames and the chain of causes; if the exception spoils that, its frames alone."""
    try:
        report = traceback.TracebackException.from_exception(error, limit=-MAX_FRAMES, max_group_width=5)
        return _joined(report.format())
    except BaseException:  # noqa: BLE001
        return _frames_of(error)


def _frames_of(error: BaseException) -> str:
    try:
        # Read past the exception's own `__getattribute__`, which may be what failed.
        frames = BaseException.__dict__["__traceback__"].__get__(error)
        return _joined(traceback.format_tb(frames, limit=-MAX_FRAMES))
    except BaseException:  # noqa: BLE001
        return ""


def _joined(parts: Iterable[str]) -> str:
    return shorten("".join(parts).rstrip("\n"), 4 * MAX_FAILURE_BYTES)
