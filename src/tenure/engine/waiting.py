"""What callers are told of their jobs: the state of each id, from the rows, and which of them ended in this turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tenure.engine.core import Core
from tenure.engine.states import DONE, PURGED, RUNNING, STATE_NAMES
from tenure.wire.commands import StateLine

STATES_BYTES = 4 * 1024 * 1024
"""Bytes of bodies above which an answer has no room for a further one; that job's kind is `later`."""

_SIZES = (1, 8, 64, 500)
"""Numbers of rows that a question asks for: few, because each is a statement that SQLite keeps prepared."""

_Row = tuple[Any, ...]


def states(core: Core, ids: Sequence[bytes], wall: int) -> list[StateLine]:
    """The state of each job, in order; `wall` is milliseconds since the epoch.

    A duplicate's id is answered as the first job.  A result that is older than `result_ttl` is `expired`, also while
    the row stays for the sake of repeated lines.
    """
    firsts = jobs_of(core, ids)
    rows = _rows(core, firsts)
    out = []
    room = STATES_BYTES
    for id, first in zip(ids, firsts, strict=True):
        row = rows.get(first)
        line = _no_row(core, id, wall) if row is None else _state(core, first, row, wall)._replace(id=id)
        if room <= 0 and line.body:
            line = line._replace(kind="later", body=b"")
        room -= len(line.body)
        out.append(line)
    return out


def jobs_of(core: Core, ids: Sequence[bytes]) -> Sequence[bytes]:
    """The jobs that these ids stand for: each its own, but for a duplicate's, which is the first one's."""
    if not core.aliases:
        return ids
    return [_first_of(core, id) for id in ids]


def _first_of(core: Core, id: bytes) -> bytes:
    alias = core.store.row("SELECT first FROM aliases WHERE id = ?", (id,))
    return alias[0] if alias else id


def _rows(core: Core, ids: Sequence[bytes]) -> dict[bytes, _Row]:
    found: dict[bytes, _Row] = {}
    for at in range(0, len(ids), _SIZES[-1]):
        part = list(ids[at : at + _SIZES[-1]])
        size = next(size for size in _SIZES if size >= len(part))
        part += [part[-1]] * (size - len(part))
        found.update((row[0], row[1:]) for row in core.store.rows(_QUESTIONS[size], part))
    return found


def _no_row(core: Core, id: bytes, wall: int) -> StateLine:
    """Never heard of, or forgotten by now: the id itself tells when it was made."""
    made = int.from_bytes(id[:6], "big")
    old = id[6] >> 4 == 7 and made + core.retention.rows < wall
    return StateLine(id, "expired" if old else "unknown", "", 0, 0, "", "none", b"")


def _state(core: Core, id: bytes, row: _Row, wall: int) -> StateLine:
    state, attempts, losses, reason, ended_at, number, error, result, queue_id = row
    queue = core.store.queue_names[queue_id]
    if state == DONE and ended_at + core.retention.result_ttl <= wall:
        return StateLine(id, "expired", queue, attempts, losses, "", "none", b"")
    name, why = STATE_NAMES[state], reason or ""
    if state == PURGED:
        name, why = "dead", f"purged from the dead list: {why}" if why else "purged from the dead list"
    kind, body = _body(core, id, state, number, error, result)
    return StateLine(id, name, queue, attempts, losses, why, kind, body)


def _body(
    core: Core, id: bytes, state: int, number: int, error: bytes | None, result: bytes | None
) -> tuple[Literal["none", "result", "failure", "progress"], bytes]:
    if state == DONE:
        return ("none", b"") if result is None else ("result", result)
    if state == RUNNING:
        lease = core.leases.of_job(id)
        progress = None if lease is None else lease.progress
        return ("none", b"") if progress is None else ("progress", progress)
    if not error and number > 1:  # the last hand-out was given back: the failure is an earlier one's
        earlier = core.store.row(LAST_ERROR, (id,))
        error = earlier[0] if earlier else None
    return ("failure", error) if error else ("none", b"")


STATE = "SELECT id, state, attempts, losses, reason, ended_at, number, error, result, queue FROM jobs WHERE id IN"
_QUESTIONS = {size: f"{STATE} ({', '.join('?' * size)})" for size in _SIZES}

LAST_ERROR = "SELECT error FROM handouts WHERE job = ? AND length(error) > 0 ORDER BY number DESC LIMIT 1"
