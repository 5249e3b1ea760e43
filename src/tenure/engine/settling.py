"""Settlements, extends and byes: how a hand-out ends, and what a repeated or late line is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tenure.engine.adding import AddAnswer, add
from tenure.engine.core import Core, moment_after
from tenure.engine.leases import Lease
from tenure.engine.states import (
    ANSWERS,
    H_CANCELLED,
    H_DEAD,
    H_LEFT,
    H_LOST,
    H_RELEASED,
    H_RETRIED,
    H_RETURNED,
    HOW_NAMES,
)
from tenure.wire.commands import Bye, ExtendItem, Settle, Untake


class SettleAnswer(NamedTuple):
    """`word` is ok, refused, lost, gone or closed; `detail` the state (ok) or how it had ended (refused)."""

    word: Literal["ok", "refused", "lost", "gone", "closed"]
    detail: str = ""
    added: tuple[AddAnswer, ...] = ()


class Held(NamedTuple):
    """The answer to an extend: milliseconds left from the line's arrival, or None when the lease is lost."""

    hold: int | None
    cancel: int = 0


class ByeAnswer(NamedTuple):
    """How a receipt had ended, or None when it is not known any more; `late`: a settlement of it was refused."""

    how: str | None
    late: bool = False


DONE = SettleAnswer("ok", "done")
CLOSED = SettleAnswer("closed")


def settle(core: Core, session_id: bytes, lines: Sequence[Settle], wall: int) -> list[SettleAnswer]:
    """End hand-outs by the worker's word, one line after the other; a repeat is answered from the row.

    The rows of what is done without further jobs are written together.
    """
    answers: list[SettleAnswer] = []
    done: list[tuple[Lease, bytes | None]] = []
    closed = core.session(session_id).closed
    for s in lines:
        lease = core.leases.get(s.id, s.number)
        if s.verb == "done" and not s.then and s.session is None and lease is not None and not closed:
            core.leases.remove(lease)
            done.append((lease, s.body))
            answers.append(DONE)
        else:
            core.end_done(done, wall)  # this line may be a repeat of one of them
            done = []
            answers.append(_settle_one(core, session_id, s, wall))
    core.end_done(done, wall)
    return answers


def _settle_one(core: Core, session_id: bytes, s: Settle, wall: int) -> SettleAnswer:
    if core.session(session_id).closed or (s.session is not None and core.session(s.session).closed):
        return CLOSED  # for `as=` too: the answer to the bye has told how its hand-outs ended
    lease = core.leases.get(s.id, s.number)
    if lease is None or (s.session is not None and lease.session != s.session):
        return _settled_before(core, s, wall)
    detail = _settle_now(core, lease, s, wall)
    return SettleAnswer("ok", detail, tuple(add(core, a, wall) for a in s.then))


def _settle_now(core: Core, lease: Lease, s: Settle, wall: int) -> str:
    match s.verb:
        case "done":
            core.leases.remove(lease)
            core.end_done([(lease, s.body)], wall)
            return "done"
        case "dead":
            core.end_dead(lease, H_DEAD, s.reason, s.body, wall, attempt=s.ran)
            return "dead"
        case "cancel":
            core.end_cancelled(lease, H_CANCELLED, s.reason, wall)
            return "cancelled"
    if lease.cancel:
        core.end_cancelled(lease, H_CANCELLED, "cancelled while it ran", wall, s.body)
        return "cancelled"
    if s.verb == "release":
        if s.delay:
            core.end_scheduled(lease, H_RELEASED, moment_after(wall, s.delay), s.reason, None, wall)
        else:
            core.end_ready(lease, H_RELEASED, s.reason, wall)
        return "released"
    if lease.attempts + 1 >= lease.max_attempts:
        reason = f"gave up after {lease.max_attempts} attempts: {s.reason}"
        core.end_dead(lease, H_DEAD, reason, s.body, wall, cause=s.reason)
        return "dead"
    core.end_scheduled(lease, H_RETRIED, moment_after(wall, s.delay), s.reason, s.body, wall)
    return "scheduled"


def _settled_before(core: Core, s: Settle, wall: int) -> SettleAnswer:
    """The hand-out runs no more: a repeat gets its first answer, anything else is refused, and counted once."""
    row = _ended_row(core, s.id, s.number)
    if row is None:
        return SettleAnswer("gone")
    how, late, table, worker, queue, session = row
    mine = s.session is None or session == s.session
    if mine and how in ANSWERS[s.verb]:
        return SettleAnswer("ok", ANSWERS[s.verb][how], tuple(add(core, a, wall) for a in s.then))
    if s.verb == "release":
        return SettleAnswer("lost")
    if not late:
        core.store.begin()
        core.store.execute(MARK_LATE[table], (s.id, s.number))
        core.ledger.queues[queue]["refused"] += 1
        core.ledger.workers[worker]["refused"] += 1
    return SettleAnswer("refused", HOW_NAMES[how])


def _ended_row(core: Core, id: bytes, number: int) -> tuple[int, int, str, int, int, bytes] | None:
    """(how, late, table, worker, queue, session) of a hand-out that has ended, or None when it is not known."""
    job = core.store.row("SELECT number, how, late, worker, queue, session FROM jobs WHERE id = ?", (id,))
    if job is None or number > job[0] or number < 1:
        return None
    if number == job[0]:
        return None if job[1] is None else (job[1], job[2], "jobs", job[3], job[4], job[5])
    row = core.store.row("SELECT how, late, worker, session FROM handouts WHERE job = ? AND number = ?", (id, number))
    return None if row is None else (row[0], row[1], "handouts", row[2], job[4], row[3])


def extend(
    core: Core, session_id: bytes, items: Sequence[ExtendItem], arrived: float, mono: float
) -> list[Held] | None:
    """Hold each receipt longer; None when the session is closed."""
    if core.session(session_id).closed:
        return None
    return [_extend_one(core, item, arrived, mono) for item in items]


def _extend_one(core: Core, item: ExtendItem, arrived: float, mono: float) -> Held:
    lease = core.leases.get(item.id, item.number)
    if lease is None:
        return Held(None)
    lease.end = max(lease.end, mono + lease.vt / 1000)
    if item.progress is not None:
        lease.progress = item.progress
    return Held(max(0, int((lease.end - arrived) * 1000)), lease.cancel)


def bye(core: Core, b: Bye, wall: int) -> list[ByeAnswer]:
    """Close a session: all that it holds is given back, and each listed receipt is told how it had ended."""
    core.change_session(b.session, closed=True)
    how = H_LEFT if b.end == "left" else H_LOST
    for lease in core.leases.of_session(b.session):
        core.cut_off(lease, how, b.cause, wall)
    return [_ended(core, id, number) for id, number in b.receipts]


def untake(core: Core, u: Untake, wall: int) -> None:
    """Give back what a take was given and its process has not read; the number grants nothing any more."""
    session = core.session(u.session)
    if session.closed:
        return
    if u.number > session.answered:
        core.change_session(u.session, answered=u.number)
    held = set(u.receipts)
    for lease in core.leases.of_session(u.session):
        if lease.take == u.number and (lease.id, lease.number) not in held:
            core.cut_off(lease, H_LEFT, u.cause, wall)


def _ended(core: Core, id: bytes, number: int) -> ByeAnswer:
    row = _ended_row(core, id, number)
    return ByeAnswer(None) if row is None else ByeAnswer(HOW_NAMES[row[0]], bool(row[1]))


def run_out(core: Core, before: float, wall: int, limit: int) -> int:
    """End up to `limit` leases that ran out at `before` (monotonic) or earlier; returns how many."""
    leases = core.leases.run_out(before, limit)
    for lease in leases:
        core.cut_off(lease, H_RETURNED, "the lease ran out", wall)
    return len(leases)


MARK_LATE = {
    "jobs": "UPDATE jobs SET late = 1 WHERE id = ? AND number = ?",
    "handouts": "UPDATE handouts SET late = 1 WHERE job = ? AND number = ?",
}
