"""An add that goes straight to a take that waits: its row is written once, and not anew for the take."""

from __future__ import annotations

from tenure.engine.adding import INLINE_BODY
from tenure.engine.core import Core
from tenure.engine.leases import Lease
from tenure.engine.states import RUNNING
from tenure.wire.commands import Add, Job, Take


def hand_over(
    core: Core, a: Add, session: bytes, worker: str, t: Take, *, arrived: float, wall: int, mono: float
) -> Job | None:
    """Store a job and hand it out to a take that waits; None, with nothing changed, where it goes the common way.

    That is where the job is not new, plain and small, or may not start now, where another one is before it, or where
    the worker has had none before.  What this writes, counts and answers is what `adding.add` and `taking.take` come
    to, one after the other.
    """
    worker_id = core.store.worker_ids.get(worker)
    if worker_id is None or not _is_plain(core, a) or core.session(session).closed:
        return None
    store, queue, vt = core.store, core.store.queue_ids[a.queue], a.vt or t.vt
    store.begin()
    store.execute(
        INSERT_RUNNING,
        (
            a.id, RUNNING, queue, a.priority, core.place + 1, False, a.vt, a.max_attempts, a.max_losses, a.task,
            a.fingerprint, a.body, 0, wall, 1, session, worker_id, t.number, vt, wall, core.commit_no,
        ),
    )  # fmt: skip
    if not store.changes():
        return None
    core.place += 1
    core.space.spend(len(a.body))
    lease = Lease(
        a.id, 1, session, worker_id, t.number, vt, mono + vt / 1000, queue, a.task, None, a.fingerprint, 0, 0,
        a.max_attempts, a.max_losses, 0, a.priority, core.place,
    )  # fmt: skip
    core.leases.add(lease)
    tally, by = core.ledger.queue(queue), core.ledger.worker(worker_id)
    tally["added"] += 1
    for counts in (tally, by):
        counts["handed_out"] += 1
        counts["running"] += 1
    core.change_session(session, answered=t.number)
    if len(t.queues) > 1:
        core.served[queue] = max(core.served.values(), default=0) + 1
    return Job(
        a.id, 1, lease.hold(arrived), vt, 1, 0, a.queue, a.task, a.fingerprint, a.body, None, a.priority, None, None,
        a.max_attempts, a.max_losses,
    )  # fmt: skip


def _is_plain(core: Core, a: Add) -> bool:
    """Whether this is a small job without a key or times, in a known queue with none before it, and may start now."""
    if a.key is not None or a.run_at is not None or a.expires is not None or len(a.body) > INLINE_BODY:
        return False
    if core.aliases or core.id_like_keys or core.space.holding or core.space.refuses(len(a.body)):
        return False
    queue = core.store.queue_ids.get(a.queue)
    if queue is None or a.queue in core.closed or a.queue in core.paused:
        return False
    return not core.ledger.queue(queue)["ready"]


INSERT_RUNNING = """
    INSERT INTO jobs (id, state, queue, priority, place, listed, vt, max_attempts, max_losses, task, fingerprint, body,
                      big, added_at, number, session, worker, take, hold_vt, begin_at, begin_commit)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
