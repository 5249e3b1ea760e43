"""What a job's message is to Redis: a head that the scripts can read, and a body that they cannot.

The head holds what never changes (see `m` at the head of `lua/prelude.lua`).  Nearly all jobs have only a task and a
fingerprint there, and everything else as it is by default.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from msgpack import UnpackException, packb, unpackb

from tenure.errors import DecodeError
from tenure.message import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, DEFAULT_PRIORITY, Message, When
from tenure.wire.encode import milliseconds

UNKNOWN_TASK = "?"
"""Stands for the task of a job whose head cannot be read."""

_PLAINLY = b"d"
_PLAIN = (None, DEFAULT_PRIORITY, None, DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, None, None)


class Head(NamedTuple):
    """A head, read back."""

    task: str
    fingerprint: bytes
    key: str | None = None
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_losses: int = DEFAULT_MAX_LOSSES


def pack_head(message: Message) -> bytes:
    """Return a message's head.

    Raises ValueError for a fingerprint that is not 16 bytes long.
    """
    options = (
        message.key,
        message.priority,
        message.visibility_timeout,
        message.max_attempts,
        message.max_losses,
        message.run_at,
        message.expires,
    )
    if options == _PLAIN and len(message.fingerprint) == 16:
        return _before_fingerprint(message.task) + message.fingerprint
    return _with_options(message)


@lru_cache(maxsize=1024)
def _before_fingerprint(task: str) -> bytes:
    packed: bytes = packb([task, b"-" * 16], use_bin_type=False)
    return _PLAINLY + packed[:-16]


def _with_options(message: Message) -> bytes:
    vt = message.visibility_timeout
    fields = (
        message.task,
        message.fingerprint,
        message.key,
        message.priority,
        None if vt is None else max(1, milliseconds(vt)),
        message.max_attempts,
        message.max_losses,
        _time(message.run_at),
        _time(message.expires),
    )
    packed: bytes = packb(fields, use_bin_type=False)
    return b"o" + packed


def _time(when: When | None) -> tuple[int, bool] | None:
    return None if when is None else (milliseconds(when.seconds), when.relative)


def read_head(packed: bytes) -> Head:
    """Return what a head says; raises DecodeError where somebody has put something else in its place."""
    try:
        if packed[:1] == _PLAINLY:
            return Head(_plain_task(packed[:-16]), packed[-16:])
        fields: list[Any] = unpackb(packed[1:], raw=True, use_list=True)
        task, fingerprint, key, priority, _, max_attempts, max_losses, *_ = fields
        text = None if key is None else key.decode()
        return Head(task.decode(), bytes(fingerprint), text, int(priority), int(max_attempts), int(max_losses))
    except (ValueError, TypeError, LookupError, AttributeError, UnpackException) as error:
        what = str(error) or type(error).__name__
        raise DecodeError(f"the field m of its record in Redis, what the job is, cannot be read: {what}") from None


@lru_cache(maxsize=1024)
def _plain_task(before_fingerprint: bytes) -> str:
    task: bytes = unpackb(before_fingerprint[1:] + bytes(16), raw=True)[0]
    return task.decode()
