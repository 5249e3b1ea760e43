"""Whole queues: pausing and closing them, calling off what waits in them, and what of it no worker knows."""

from __future__ import annotations

from tenure.engine.core import Core, Waiting
from tenure.engine.states import CANCELLED, H_RELEASED, READY, SCHEDULED
from tenure.outcome import NO_TASK
from tenure.wire.commands import QueueVerb

LOOK_BATCH = 2_000
"""Rows that one line of a purge looks at, so that it costs the others a bounded time."""

UNKNOWN_WITHIN = 60_000
"""Milliseconds within which a job is due again whose task its worker did not know; it rests for no longer."""

UNKNOWN_LOOK = 20_000
"""Scheduled jobs that are looked at for that, the next ones first."""

_SWITCHES: dict[QueueVerb, tuple[str, bool, str]] = {
    "pause": ("paused", True, "paused"),
    "resume": ("paused", False, "resumed"),
    "close": ("closed", True, "closed"),
    "open": ("closed", False, "open"),
}
"""For each verb: the column, its value, and the answer's word."""


def switch(core: Core, verb: QueueVerb, name: str) -> str | None:
    """Pause, resume, close or open a queue; the answer's word, None for a queue that is not there."""
    id = core.store.queue_ids.get(name)
    if id is None:
        return None
    column, value, word = _SWITCHES[verb]
    core.store.begin()
    core.store.execute(f"UPDATE queues SET {column} = ? WHERE id = ?", (value, id))
    core.read_switches()
    if verb == "resume":
        core.woken.add(name)
    return word


def purge(core: Core, name: str, after: bytes | None, wall: int) -> tuple[int, bytes | None] | None:
    """Call off what waits in a queue among the next so many jobs behind `after`, in the order of their ids.

    Returns how many that were and where to go on (None: nowhere), or None for a queue that is not there.
    """
    queue = core.store.queue_ids.get(name)
    if queue is None:
        return None
    tally = core.ledger.queue(queue)
    if not tally["ready"] + tally["scheduled"]:
        return 0, None
    rows = core.store.rows(LOOK, (after or b"", LOOK_BATCH))
    waiting = [Waiting(*row) for row in rows if row[1] == queue and row[2] in (SCHEDULED, READY)]
    core.end_waiting(waiting, CANCELLED, "purged from its queue", wall)
    return len(waiting), rows[-1][0] if len(rows) == LOOK_BATCH else None


def unknown_tasks(core: Core, wall: int) -> dict[str, dict[str, int]]:
    """How many jobs wait, by queue and task, because the worker that took them last does not know their task."""
    found: dict[str, dict[str, int]] = {}
    for queue, task, n in core.store.rows(UNKNOWN, (wall + UNKNOWN_WITHIN, UNKNOWN_LOOK, f"{NO_TASK}%")):
        found.setdefault(core.store.queue_names[queue], {})[task] = n
    return found


LOOK = "SELECT id, queue, state, task, key FROM jobs WHERE id > ? ORDER BY id LIMIT ?"

UNKNOWN = f"""
    SELECT queue, task, count(*) FROM (
        SELECT queue, task, how, cause FROM jobs INDEXED BY due
        WHERE state = {SCHEDULED} AND run_at <= ? ORDER BY run_at LIMIT ?
    ) WHERE how = {H_RELEASED} AND cause LIKE ? GROUP BY queue, task
"""
