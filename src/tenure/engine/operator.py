"""The operator's verbs: look at jobs, put dead ones back, purge them, cancel."""

from __future__ import annotations

from typing import Any

from tenure.engine.adding import hold_key, key_holder
from tenure.engine.core import Core, Waiting
from tenure.engine.states import CANCELLED, DEAD, HOW_NAMES, PURGED, READY, RUNNING, SCHEDULED, STATE_NAMES
from tenure.engine.waiting import jobs_of


def cancel_job(core: Core, id: bytes, terminate: bool, wall: int) -> str | None:
    """Cancel a waiting job, ask a running one; returns the answer's words, None for an unknown id.

    A duplicate's id stands for the first job, as everywhere else; a purged job was dead.
    """
    (id,) = jobs_of(core, (id,))
    row = core.store.row("SELECT state, queue, task, key, cancel FROM jobs WHERE id = ?", (id,))
    if row is None:
        return None
    state, queue, task, key, asked = row
    if state in (SCHEDULED, READY):
        core.end_waiting([Waiting(id, queue, state, task, key)], CANCELLED, "cancelled", wall)
        return "cancelled"
    if state != RUNNING:
        return f"already {STATE_NAMES[DEAD if state == PURGED else state]}"
    mark = max(asked, 2 if terminate else 1)
    core.store.begin()
    core.store.execute("UPDATE jobs SET cancel = ? WHERE id = ?", (mark, id))
    lease = core.leases.of_job(id)
    assert lease is not None  # every running job has its lease in the book
    lease.cancel = mark
    return "asked"


def requeue(core: Core, id: bytes, wall: int) -> str | bytes | None:
    """Put a dead job back with all its attempts; a job's id (bytes) is the other holder of its key."""
    row = core.store.row("SELECT state, queue, task, key, fingerprint, expired, priority FROM jobs WHERE id = ?", (id,))
    if row is None:
        return None
    state, queue, task, key, fingerprint, expired, priority = row
    if state != DEAD:
        return f"already {STATE_NAMES[state]}"
    holder = key_holder(core, task, key if key is not None else id.hex(), wall)
    if holder is not None:
        return holder[0]
    core.store.begin()
    core.place += 1
    core.store.execute(REQUEUE, (core.place, id))
    core.lines.enlist(queue, priority, core.place)
    if key is not None:
        hold_key(core, task, key, id, fingerprint)
    tally = core.ledger.queues[queue]
    tally["dead"] -= 1
    tally["ready"] += 1
    tally["expired"] -= expired
    core.woken.add(core.store.queue_names[queue])
    return "ready"


def purge(core: Core, id: bytes, wall: int) -> str | None:
    """Take a job off the dead list for good; its id stays known for a while."""
    row = core.store.row("SELECT state, queue, expired, big FROM jobs WHERE id = ?", (id,))
    if row is None:
        return None
    state, queue, expired, big = row
    if state != DEAD:
        return f"already {STATE_NAMES[state]}"
    core.store.begin()
    core.store.execute(PURGE, (wall, id))
    if big:
        core.store.execute("DELETE FROM bodies WHERE id = ?", (big,))
    tally = core.ledger.queues[queue]
    tally["dead"] -= 1
    tally["purged"] += 1
    tally["expired"] -= expired
    return "purged"


def browse_dead(core: Core, queue: str | None, limit: int, after: bytes | None) -> list[dict[str, Any]]:
    """Dead jobs in the order of their ids, from behind `after`; of one queue or of all."""
    start = after or b""
    if queue is None:
        ids = core.store.rows(
            "SELECT id FROM jobs INDEXED BY dead WHERE state = 5 AND id > ? ORDER BY id LIMIT ?", (start, limit)
        )
    else:
        ids = core.store.rows(
            "SELECT id FROM jobs INDEXED BY dead WHERE state = 5 AND queue = ? AND id > ? ORDER BY id LIMIT ?",
            (core.store.queue_ids.get(queue, -1), start, limit),
        )
    shown = (show(core, id) for (id,) in ids)
    return [job for job in shown if job is not None]


def show(core: Core, id: bytes) -> dict[str, Any] | None:
    """All that is known of a job: JSON values; bytes (failures, result, a dead job's body) as hexadecimal text."""
    row = core.store.row(f"SELECT {', '.join(SHOWN)} FROM jobs WHERE id = ?", (id,))
    if row is None:
        return None
    job = dict(zip(SHOWN, row, strict=True))
    handouts = [
        _handout(core, past)
        for past in core.store.rows(f"SELECT {HANDOUT} FROM handouts WHERE job = ? ORDER BY number", (id,))
    ]
    if job["number"]:
        last = core.store.row(f"SELECT {HANDOUT} FROM jobs WHERE id = ?", (id,))
        assert last is not None  # read in the same turn
        handouts.append(_handout(core, last))
    body, big = job.pop("body"), job.pop("big")
    if big:
        stored = core.store.row("SELECT body FROM bodies WHERE id = ?", (big,))
        body = stored[0] if stored else b""
    dead = job["state"] == DEAD
    lease, result = core.leases.of_job(id), job["result"]
    return {
        **job,
        "id": id.hex(),
        "key": job["key"] if job["key"] is not None else id.hex(),
        "state": STATE_NAMES[job["state"]],
        "queue": core.store.queue_names[job["queue"]],
        "body": body.hex() if dead else None,
        "fingerprint": job["fingerprint"].hex(),
        "result": None if result is None else result.hex(),
        "progress": None if lease is None or lease.progress is None else lease.progress.hex(),
        "expired": bool(job["expired"]),
        "cancel": ("", "ask", "terminate")[job["cancel"]],
        "handouts": handouts,
    }


def _handout(core: Core, row: tuple[Any, ...]) -> dict[str, Any]:
    number, session, worker, take, vt, begin_at, begin_commit, end_at, end_commit, how, late, cause, error = row
    return {
        "number": number,
        "worker": core.store.worker_names[worker],
        "session": session.hex(),
        "take": take,
        "visibility_timeout_ms": vt,
        "begin_at": begin_at,
        "begin_commit": begin_commit,
        "end_at": end_at,
        "end_commit": end_commit,
        "ended": HOW_NAMES[how] if how is not None else "running",
        "late": bool(late),
        "cause": cause or "",
        "error": error.hex() if error else "",
    }


SHOWN = (
    "id", "state", "queue", "task", "key", "fingerprint", "priority", "run_at", "expires", "attempts", "losses",
    "max_attempts", "max_losses", "added_at", "ended_at", "reason", "cancel", "expired", "number", "body", "big",
    "result",
)  # fmt: skip

HANDOUT = """
    number, session, worker, take, hold_vt, begin_at, begin_commit, end_at, end_commit, how, late, cause, error
"""

REQUEUE = f"""
    UPDATE jobs SET state = {READY}, place = ?, listed = 1, attempts = 0, losses = 0, ended_at = NULL, reason = NULL,
                    expired = 0, expires = NULL, run_at = NULL, cancel = 0
    WHERE id = ?
"""

PURGE = f"UPDATE jobs SET state = {PURGED}, ended_at = ?, body = x'', big = 0, expired = 0, error = NULL WHERE id = ?"
