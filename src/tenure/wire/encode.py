"""Commands and answers to bytes, for both ends.

Each line is built in one step, its body and line ends included, so that it is written with one call and can be
repeated byte for byte.  Seconds become whole milliseconds here.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from tenure.message import Message, Settlement, When
from tenure.wire.commands import MAX_BATCH_LINES, MAX_LINE, PROTOCOL, Job, QueueVerb, Role, StateLine
from tenure.wire.words import quote, quote_name

_MAX_TEXT = 1_000
_unprintable = re.compile(r"[^ -~]").sub
_DEFAULTS = (None, 5, None, None, None, 20, 5)
_JOB_DEFAULTS = (None, 5, None, None, 20, 5)
"""The last fields of a delivered job that has none of them."""
_NAMES = ("p", "at", "x", "vt", "ma", "ml")
"""The options' names behind the key's, in the order of their defaults."""


def milliseconds(seconds: float) -> int:
    """Round seconds to whole milliseconds, below zero to zero."""
    return max(0, round(seconds * 1000))


def hello(session: str, role: Role, name: str) -> bytes:
    """The first line on a connection; `session` is 32 hexadecimal digits."""
    return f"hello {PROTOCOL} {session} {role} {quote(name)}\n".encode("ascii")


def add(message: Message, body: bytes) -> bytes:
    """An add with its body."""
    id, task, _, _, print_, queue, key, priority, run_at, expires, _, vt, attempts, losses, _, _ = message
    head = f"add {id} {quote_name(queue)} {quote_name(task)} {print_.hex()} {len(body)}"
    if (key, priority, run_at, expires, vt, attempts, losses) != _DEFAULTS:
        head += _add_options(message)
    return b"%b\n%b\n" % (head.encode("ascii"), body)


def _add_options(message: Message) -> str:
    run_at = None if message.run_at is None else _when(message.run_at)
    expires = None if message.expires is None else _when(message.expires)
    vt = None if message.visibility_timeout is None else max(1, milliseconds(message.visibility_timeout))
    return _options(message.key, message.priority, run_at, expires, vt, message.max_attempts, message.max_losses)


def _options(
    key: str | None,
    priority: int,
    run_at: str | int | None,
    expires: str | int | None,
    vt: int | None,
    max_attempts: int,
    max_losses: int,
) -> str:
    """Spell the options of an add or a delivered job that differ from their defaults."""
    text = "" if key is None else f" k={quote(key)}"
    values = (priority, run_at, expires, vt, max_attempts, max_losses)
    for name, value, default in zip(_NAMES, values, _DEFAULTS[1:], strict=True):
        if value != default:
            text += f" {name}={value}"
    return text


def _when(when: When) -> str:
    return f"+{milliseconds(when.seconds)}" if when.relative else str(milliseconds(when.seconds))


def take(number: int, limit: int, wait: float, visibility_timeout: float, queues: Sequence[str]) -> bytes:
    """A take; `wait` and `visibility_timeout` are seconds."""
    vt = max(1, milliseconds(visibility_timeout))
    names = " ".join([quote_name(queue) for queue in queues])
    return f"take {number} {limit} {milliseconds(wait)} {vt} {names}\n".encode("ascii")


def settle(settlement: Settlement, bodies: Sequence[bytes] = (), session: str | None = None) -> bytes:
    """A settlement with its body and its adds; `bodies` are those of `settlement.then`, in order.

    Raises ValueError for more adds than the protocol takes in one settlement.
    """
    if len(settlement.then) > MAX_BATCH_LINES:
        raise ValueError(f"a settlement has at most {MAX_BATCH_LINES} adds, not {len(settlement.then)}")
    kind = settlement.kind
    options = f" then={len(settlement.then)}" if settlement.then else ""
    if session is not None:
        options += f" as={session}"
    if not settlement.ran:
        options += " run=0"
    receipt = settlement.receipt.decode("ascii")
    body: bytes | None = None
    if kind == "done":
        body = settlement.result
        head = f"done {receipt}"
    elif kind in ("retry", "release"):
        head = f"{kind} {receipt} {milliseconds(settlement.delay)} {_reason(settlement.reason)}"
        body = settlement.error if kind == "retry" else None
    else:
        head = f"{kind} {receipt} {_reason(settlement.reason)}"
        body = settlement.error if kind == "dead" else None
    if body is None:
        line = f"{head}{options}\n".encode("ascii")
    else:
        line = b"%b\n%b\n" % (f"{head} {len(body)}{options}".encode("ascii"), body)
    if not settlement.then:
        return line
    adds = [add(message, packed) for message, packed in zip(settlement.then, bodies, strict=True)]
    return line + b"".join(adds)


def _reason(text: str) -> str:
    """Spell a reason, cut so that the line stays far below its limit."""
    return quote(text[:_MAX_TEXT].encode("utf-8", "replace").decode())


def extend(items: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """An extend of (receipt, progress) pairs; see `split_extend` for the limit of a line."""
    words = [receipt if progress is None else b"%b+%d" % (receipt, len(progress)) for receipt, progress in items]
    line = b"extend %b\n" % b" ".join(words)
    bodies = [progress for _, progress in items if progress is not None]
    return line + b"".join(bodies) + b"\n" if bodies else line


def bye(session: str, end: Literal["left", "lost"], cause: str, receipts: Sequence[bytes]) -> bytes:
    """The end of a session; the receipts are those whose settlement was not answered."""
    line = b" ".join([f"bye {session} {end} {_reason(cause)}".encode("ascii"), *receipts])
    return line + b"\n"


def untake(session: str, number: int, cause: str, receipts: Sequence[bytes]) -> bytes:
    """The end of a take whose answer is not read; the receipts are those of it that are held all the same."""
    line = b" ".join([f"untake {session} {number} {_reason(cause)}".encode("ascii"), *receipts])
    return line + b"\n"


RECEIPTS_PER_LINE = MAX_LINE // 80
"""Receipts that fit into one line whatever their numbers are (a receipt has at most 52 bytes, `+LEN` 8)."""


def cancel_job(id: str, terminate: bool = False) -> bytes:
    """The caller's wish to cancel a job."""
    return f"cancel-job {id}{' terminate' if terminate else ''}\n".encode("ascii")


def requeue(id: str) -> bytes:
    """Put a dead job back."""
    return f"requeue {id}\n".encode("ascii")


def purge(id: str) -> bytes:
    """Take a dead job off the list for good."""
    return f"purge {id}\n".encode("ascii")


def switch(verb: QueueVerb, queue: str) -> bytes:
    """Pause, resume, close or open a queue."""
    return f"{verb} {quote_name(queue)}\n".encode("ascii")


def purge_queue(queue: str, after: str | None) -> bytes:
    """Call off a part of what waits in a queue, from behind the job `after`."""
    return f"purge-queue {quote_name(queue)} {after or '-'}\n".encode("ascii")


def show(id: str) -> bytes:
    """Ask for all that is known of a job."""
    return f"show {id}\n".encode("ascii")


def browse(queue: str | None, limit: int, after: str | None) -> bytes:
    """Ask for a page of the dead list."""
    return f"browse dead {'-' if queue is None else quote_name(queue)} {limit} {after or '-'}\n".encode("ascii")


def wait(ids: Sequence[str], seconds: float) -> bytes:
    """Ask for the states of at most `MAX_WAIT_IDS` jobs, once one of them has ended or `seconds` are over."""
    return f"wait {milliseconds(seconds)} {' '.join(ids)}\n".encode("ascii")


def report(what: Literal["record", "verify", "queues"]) -> bytes:
    """Ask for the record, its check, or the queues."""
    return f"{what}\n".encode("ascii")


def jobs(items: Sequence[Job]) -> bytes:
    """The answer to a take."""
    parts = [_job(item) for item in items]
    return b"jobs %d %d\n%b" % (len(parts), sum(map(len, parts)), b"".join(parts))


def _job(job: Job) -> bytes:
    id, number, hold, vt, attempt, losses, queue, task, fingerprint, body = job[:10]
    options = b""
    if job[10:] != _JOB_DEFAULTS:
        text = _options(job.key, job.priority, job.run_at, job.expires, None, job.max_attempts, job.max_losses)
        options = text.encode("ascii")
    return b"job %b %d %d %d %d %d %b %b %b %d%b\n%b\n" % (
        hexlify(id), number, hold, vt, attempt, losses, _word(queue), _word(task), hexlify(fingerprint), len(body),
        options, body,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _word(name: str) -> bytes:
    return quote(name).encode("ascii")


def states(items: Sequence[StateLine]) -> bytes:
    """The answer to a wait."""
    parts = [_state(item) for item in items]
    return b"states %d %d\n%b" % (len(parts), sum(map(len, parts)), b"".join(parts))


def _state(item: StateLine) -> bytes:
    id, state, queue, attempts, losses, reason, kind, body = item
    words = f"{attempts} {losses} {_reason(reason)} {kind} {len(body)}"
    head = f"state {id.hex()} {state} {quote(queue)} {words}"
    return b"%b\n%b\n" % (head.encode("ascii"), body)


def json_answer(packed: bytes) -> bytes:
    """An answer whose body is JSON."""
    return b"json %d\n%b\n" % (len(packed), packed)


def err(code: str, text: str) -> bytes:
    """An error's answer: one line of printable ASCII whatever the text is."""
    return f"err {code} {_unprintable('?', text[:_MAX_TEXT])}\n".encode("ascii")
