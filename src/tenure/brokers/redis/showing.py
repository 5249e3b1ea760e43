"""All that is known of a job, as JSON values for an operator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgpack import UnpackException, unpackb

from tenure.brokers.redis.layout import base
from tenure.brokers.redis.packed import UNKNOWN_TASK, Head, read_head
from tenure.engine.states import DEAD, DONE, HOW_NAMES, STATE_NAMES
from tenure.errors import DecodeError
from tenure.names import shown

_LAST = ("n", "s", "w", "tk", "v", "hb", "he", "ho", "l", "ca", "er")
_NUMBERS = ("st", "n", "at", "ls", "c", "a", "e", "ra", "x")
_NUMBER = re.compile(rb"-?[0-9]{1,18}")


def readable(id: str, queue: str, answer: Sequence[Any]) -> dict[str, Any]:
    """Return a job from what the script `show` answers; bytes are hexadecimal text.

    What somebody has spoiled is left out, and `reason` says what that is.
    """
    flat, earlier, long, is_hash = answer
    f = {name.decode("utf-8", "replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    wrong: list[str] = []
    if not is_hash:
        wrong.append(f"its key {base(queue).decode()}:j:{id} in Redis is no hash")
    wrong += [_cut(name, f) for name in _NUMBERS if not _NUMBER.fullmatch(f.get(name, b"0"))]
    head = _head(f.get("m", b""), wrong)
    state = int(f.get("st", 0))
    if state not in STATE_NAMES and not wrong:
        wrong.append("it has no state")
    handouts = _handouts(earlier, f, wrong)
    reason = [_text(f["y"])] if "y" in f else []
    if wrong:
        reason.append(f"its record is spoiled: {'; '.join(wrong)}")
    return {
        "id": id,
        "state": STATE_NAMES.get(state, "spoiled"),
        "queue": queue,
        "task": head.task,
        "key": head.key if head.key is not None else id,
        "fingerprint": head.fingerprint.hex(),
        "priority": head.priority,
        "run_at": _number(f, "ra"),
        "expires": _number(f, "x"),
        "attempts": _number(f, "at") or 0,
        "losses": _number(f, "ls") or 0,
        "max_attempts": head.max_attempts,
        "max_losses": head.max_losses,
        "added_at": _number(f, "a"),
        "ended_at": _number(f, "e"),
        "reason": "; ".join(reason) if reason else None,
        "cancel": {1: "ask", 2: "terminate"}.get(_number(f, "c") or 0, ""),
        "expired": "xp" in f,
        "number": _number(f, "n") or 0,
        "body": _hex(f.get("b", long)) if state == DEAD else None,
        "result": _hex(f.get("r", long)) if state == DONE else None,
        "progress": f["pg"].hex() if "pg" in f else None,
        "handouts": handouts,
    }


def _head(packed: bytes, wrong: list[str]) -> Head:
    try:
        return read_head(packed)
    except DecodeError as error:
        wrong.append(str(error))
        return Head(UNKNOWN_TASK, b"")


def _cut(name: str, f: dict[str, bytes]) -> str:
    """Leave out a field that is no number, and say so."""
    return f"its field {name} is no number but {shown(_text(f.pop(name)))}"


def _handouts(earlier: Sequence[bytes], f: dict[str, bytes], wrong: list[str]) -> list[dict[str, Any]]:
    handouts = []
    try:
        handouts += [_handout(unpackb(packed, raw=True)) for packed in earlier]
        if "n" in f:
            handouts.append(_handout([f.get(name) for name in _LAST]))
    except (ValueError, TypeError, LookupError, AttributeError, UnpackException):
        wrong.append("a hand-out of it cannot be read")
    return handouts


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _number(fields: dict[str, bytes], name: str) -> int | None:
    value = fields.get(name)
    return None if value is None else int(value)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _handout(h: Sequence[Any]) -> dict[str, Any]:
    number, session, worker, take, vt, begin_at, end_at, how, late, cause, error = h
    return {
        "number": int(number),
        "worker": _text(worker),
        "session": _text(session),
        "take": int(take),
        "visibility_timeout_ms": int(vt),
        "begin_at": int(begin_at),
        "end_at": None if end_at is None else int(end_at),
        "ended": "running" if how is None else HOW_NAMES[int(how)],
        "late": bool(int(late or 0)),
        "cause": _text(cause),
        "error": error.hex() if error else "",
    }
