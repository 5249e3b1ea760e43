"""Takes: who gets which job, and what a repeated take is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tenure.engine.core import Core, Waiting
from tenure.engine.history import keep_handout
from tenure.engine.leases import Lease
from tenure.engine.line import WAITING
from tenure.engine.states import DEAD, EXPIRED, READY
from tenure.wire.commands import Job, Take

TAKE_BYTES = 4 * 1024 * 1024
"""Bytes of bodies above which an answer gets no further job, so that one take cannot fill the memory of both ends."""

LATE_BATCH = 2_000
"""Jobs past their latest start that a take clears away at most; then it waits, and the next turn goes on with them."""

LATE_LOOK = 200
"""Rows that are read in one go where such jobs stand at the head of the line."""

TakeAnswer = list[Job] | Literal["closed", "stale"] | None
"""Jobs (perhaps none), or why the number is not answered; None: nothing is there, the take may be parked."""


def take(
    core: Core, session_id: bytes, worker: str, t: Take, *, arrived: float, wall: int, mono: float, final: bool
) -> TakeAnswer:
    """Answer a take: hand jobs out, or repeat what this number was given.

    `arrived` is when the line's bytes had been read, `mono` is now (both monotonic seconds); `hold` in the answer
    counts from `arrived`.  `final`: answer empty rather than None when nothing is there.
    """
    session = core.session(session_id)
    if session.closed:
        return "closed"
    if t.number < session.answered:
        return "stale"
    if t.number == session.answered:
        return _again(core, session_id, t.number, arrived)
    jobs = [] if core.space.holding else _grant(core, session_id, worker, t, arrived, wall, mono)
    if not jobs and not final:
        return None
    core.change_session(session_id, answered=t.number)
    return jobs


def _again(core: Core, session: bytes, number: int, arrived: float) -> list[Job]:
    """The hand-outs of an answered take that still run, with the time that is left; answered from the rows."""
    held = [lease for lease in core.leases.of_session(session) if lease.take == number]
    jobs = []
    for lease in held:
        row = core.store.row(f"SELECT {WAITING} FROM jobs WHERE id = ?", (lease.id,))
        assert row is not None  # a leased job has its row
        jobs.append(_job(core, row, lease, arrived))
    return jobs


def _grant(core: Core, session: bytes, worker: str, t: Take, arrived: float, wall: int, mono: float) -> list[Job]:
    jobs: list[Job] = []
    room = TAKE_BYTES
    cleared = 0
    while len(jobs) < t.limit and room > 0 and cleared < LATE_BATCH:
        found = 0
        for queue, n in _shares(core, t.queues, t.limit - len(jobs)):
            rows = core.lines.first(queue, n + LATE_LOOK if cleared else n)
            found += len(rows)
            rows, late = _in_time(core, rows, n, wall)
            cleared += late
            granted = _hand_out(core, session, worker, t, rows, arrived, wall, mono, room)
            room -= sum([len(job.body) for job in granted])
            jobs += granted
        if not found:  # of the rows, not of the counts: those must not be able to keep the server busy for ever
            break
    core.late = core.late or cleared >= LATE_BATCH
    return jobs


def _in_time(core: Core, rows: list[tuple[Any, ...]], n: int, wall: int) -> tuple[list[tuple[Any, ...]], int]:
    """Return the first `n` of these rows that may still start, and how many before them may not; those end here."""
    if all(row[2] is None for row in rows[:n]):
        return rows[:n], 0
    fresh: list[tuple[Any, ...]] = []
    late: list[Waiting] = []
    for row in rows:
        if len(fresh) == n:
            break
        if row[2] is None or row[2] > wall:
            fresh.append(row)
        else:
            late.append(Waiting(row[0], row[1], READY, row[5], row[6]))
    core.end_waiting(late, DEAD, EXPIRED, wall)
    return fresh, len(late)


def _shares(core: Core, names: Sequence[str], limit: int) -> list[tuple[int, int]]:
    """How many jobs to take from which queue: one each in turn, the queue that was served longest ago first."""
    if core.paused:
        names = [name for name in names if name not in core.paused]
    if len(names) == 1:  # what most workers ask for
        id = core.store.queue_ids.get(names[0])
        ready = core.ledger.queues[id]["ready"] if id is not None and id in core.ledger.queues else 0
        return [(id, min(limit, ready))] if id is not None and ready else []
    ids = (core.store.queue_ids.get(name) for name in names)
    left = {id: core.ledger.queues[id]["ready"] for id in ids if id is not None and id in core.ledger.queues}
    turn = [id for id, ready in left.items() if ready]
    if not turn:
        return []
    turn.sort(key=lambda id: core.served.get(id, 0))
    shares = round_robin([(id, left[id]) for id in turn], limit)
    last = max(core.served.values(), default=0)
    in_order = sorted(shares, key=lambda share: share[1])  # whoever gives most gives the last one
    core.served.update((id, last + place) for place, (id, _) in enumerate(in_order, 1))
    return shares


def round_robin(ready: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Share `limit` out among queues with so many ready jobs, one each in turn; pure.

    >>> round_robin([(1, 5), (2, 1), (3, 9)], 6)
    [(1, 3), (2, 1), (3, 2)]
    """
    shares = dict.fromkeys((queue for queue, _ in ready), 0)
    left = dict(ready)
    while limit and left:
        for queue in list(left):
            if not limit:
                break
            shares[queue] += 1
            left[queue] -= 1
            limit -= 1
            if not left[queue]:
                del left[queue]
    return [(queue, n) for queue, n in shares.items() if n]


def _hand_out(
    core: Core,
    session: bytes,
    worker: str,
    t: Take,
    rows: list[tuple[Any, ...]],
    arrived: float,
    wall: int,
    mono: float,
    room: int,
) -> list[Job]:
    """Hand out the jobs of these rows, as far as their bodies have room (bytes); the rest stays ready."""
    core.store.begin()
    worker_id = core.store.worker_id(worker)
    jobs = []
    held: dict[int, list[bytes]] = {}  # by visibility timeout
    for row in rows:
        if room <= 0:
            break
        id, queue, number = row[0], row[1], row[3]
        if number:
            keep_handout(core, id, queue, number, wall)
        vt = row[4] or t.vt
        lease = Lease(
            id, number + 1, session, worker_id, t.number, vt, mono + vt / 1000, queue, row[5], row[6], row[7], row[8],
            row[9], row[10], row[11], row[12], row[14], row[16],
        )  # fmt: skip
        core.leases.add(lease)
        core.lines.leave(id, queue)
        held.setdefault(vt, []).append(id)
        job = _job(core, row, lease, arrived)
        room -= len(job.body)
        jobs.append(job)
    for vt, ids in held.items():
        core.store.each(HAND_OUT, (session, worker_id, t.number, vt, wall, core.commit_no), ids)
    tally, by = core.ledger.queue(rows[0][1]) if rows else {}, core.ledger.worker(worker_id)
    for counts in (tally, by):
        if jobs:
            counts["handed_out"] += len(jobs)
            counts["running"] += len(jobs)
    if jobs:
        tally["ready"] -= len(jobs)
    return jobs


def _job(core: Core, row: tuple[Any, ...], lease: Lease, arrived: float) -> Job:
    body = row[13]
    if lease.big:
        stored = core.store.row("SELECT body FROM bodies WHERE id = ?", (lease.big,))
        assert stored is not None  # written in the job's own transaction
        body = stored[0]
    return Job(
        lease.id, lease.number, lease.hold(arrived), lease.vt, lease.attempts + 1, lease.losses,
        core.store.queue_names[lease.queue], lease.task, lease.fingerprint, body, lease.key, row[14], row[15], row[2],
        lease.max_attempts, lease.max_losses,
    )  # fmt: skip


HAND_OUT = """
    UPDATE jobs SET state = 3, number = number + 1, session = ?, worker = ?, take = ?, hold_vt = ?, begin_at = ?,
                    begin_commit = ?, end_at = NULL, end_commit = NULL, how = NULL, late = 0, cause = NULL, error = NULL
"""
