"""All that is known of a job, as JSON values for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgpack import unpackb

from tenure.brokers.redis.packed import read_head
from tenure.engine.states import DEAD, DONE, HOW_NAMES, STATE_NAMES

_LAST = ("n", "s", "w", "tk", "v", "hb", "he", "ho", "l", "ca", "er")


def readable(id: str, queue: str, answer: Sequence[Any]) -> dict[str, Any]:
    """Return a job from what the script `show` answers; bytes are hexadecimal text."""
    flat, earlier, long = answer
    f = {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    head = read_head(f["m"])
    state = int(f["st"])
    handouts = [_handout(unpackb(packed, raw=True)) for packed in earlier]
    if "n" in f:
        handouts.append(_handout([f.get(name) for name in _LAST]))
    return {
        "id": id,
        "state": STATE_NAMES[state],
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
        "reason": _text(f["y"]) if "y" in f else None,
        "cancel": ("", "ask", "terminate")[_number(f, "c") or 0],
        "expired": "xp" in f,
        "number": _number(f, "n") or 0,
        "body": _hex(f.get("b", long)) if state == DEAD else None,
        "result": _hex(f.get("r", long)) if state == DONE else None,
        "progress": f["pg"].hex() if "pg" in f else None,
        "handouts": handouts,
    }


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
