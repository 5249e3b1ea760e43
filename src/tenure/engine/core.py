"""What the engine's parts share: the store, the counts, the leases, and the ends of a hand-out.

Every change of state goes through this module or through one statement of the part that makes it, together with
its counts, so that each transition stands in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenure.engine.leases import Lease, LeaseBook
from tenure.engine.ledger import Ledger
from tenure.engine.line import Lines
from tenure.engine.space import Space
from tenure.engine.states import (
    ATTEMPTS,
    CANCELLED,
    DEAD,
    H_DONE,
    HOW_NAMES,
    LOSSES,
    READY,
    SCHEDULED,
    STATE_NAMES,
)
from tenure.engine.store import Store
from tenure.wire.commands import FLOOR


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs and their keys stay, in milliseconds."""

    result_ttl: int = 3_600_000
    key_window: int = 86_400_000

    @property
    def rows(self) -> int:
        """How long the row and the hand-outs of a done or cancelled job stay."""
        return max(self.result_ttl, int(FLOOR * 1000))


@dataclass(frozen=True, slots=True)
class Session:
    """What the engine remembers of a process's session; only the running hand-outs of it are durable."""

    answered: int = 0
    closed: bool = False


NEW_SESSION = Session()


class Waiting(NamedTuple):
    """A job that is scheduled or ready, as far as its end has to know it."""

    id: bytes
    queue: int
    state: int
    task: str
    key: str | None


class Core:
    """The shared state of the engine's parts."""

    def __init__(self, store: Store, retention: Retention, reserve: int, mono: float) -> None:
        self.store = store
        self.space = Space(store, reserve)
        self.retention = retention
        self.ledger = Ledger(store)
        self.lines = Lines(store)
        self.sessions: dict[bytes, Session] = {}
        # Sessions that this turn has changed, as they were: a turn that fails takes it back.
        self.moved: dict[bytes, Session | None] = {}
        # When each queue was served last, as a number that grows: takes of several queues begin with the others.
        self.served: dict[int, int] = {}
        self.woken: set[str] = set()
        """Names of queues in which jobs have become ready since the last look."""
        self.awaited: Mapping[bytes, object] = {}
        """Jobs that somebody waits for; only their ends are noted."""
        self.ended: set[bytes] = set()
        self.late = False
        """Jobs that are past their latest start may be left over; the next turn goes on with them."""
        self.load(mono)

    def load(self, mono: float) -> None:
        """Make everything that lives in memory anew from the rows; every running lease has its full time again."""
        self.ledger.load()
        self.lines.load()
        last = self.store.row("SELECT max(place), max(max(ifnull(begin_commit, 0), ifnull(end_commit, 0))) FROM jobs")
        assert last is not None  # an aggregate always has one row
        self.place = max(last[0] or 0, getattr(self, "place", 0))
        self.commit_no = max(last[1] or 0, getattr(self, "commit_no", 0)) + 1
        self.next_body = self._count("SELECT ifnull(max(id), 0) FROM bodies") + 1
        self.leases = LeaseBook()
        for row in self.store.rows(RUNNING_LEASES):
            id, number, session_id, worker, take, vt, *rest = row
            self.leases.add(Lease(id, number, session_id, worker, take, vt, mono + vt / 1000, *rest))
            known = self.session(session_id)
            self.sessions[session_id] = Session(max(known.answered, take), known.closed)
        self.aliases = self._count("SELECT count(*) FROM aliases")
        self.id_like_keys = self._count("SELECT count(*) FROM keys WHERE length(key) = 32")
        self.late = False
        self.read_switches()
        self.next_due: int | None = self._first("SELECT min(run_at) FROM jobs INDEXED BY due WHERE state = 1")
        self.wake_all()

    def read_switches(self) -> None:
        """Read from the rows which queues are paused, and which are closed."""
        self.paused = {name for (name,) in self.store.rows("SELECT name FROM queues WHERE paused")}
        self.closed = {name for (name,) in self.store.rows("SELECT name FROM queues WHERE closed")}

    def wake_all(self) -> None:
        """Have every parked take look again."""
        self.woken = {self.store.queue_names[id] for id, tally in self.ledger.queues.items() if tally["ready"]}

    def _count(self, question: str) -> int:
        return self._first(question) or 0

    def _first(self, question: str) -> int | None:
        row = self.store.row(question)
        return row[0] if row else None

    def session(self, id: bytes) -> Session:
        """What is known of a session; of a new one: nothing."""
        return self.sessions.get(id, NEW_SESSION)

    def forget_session(self, id: bytes) -> bool:
        """Let go of a session's memory, unless it still holds jobs: its answered number must not grant again."""
        if self.leases.of_session(id):
            return False
        self.sessions.pop(id, None)
        return True

    def change_session(self, id: bytes, *, answered: int | None = None, closed: bool = False) -> None:
        """Note the last answered take number, or that the session was said bye to."""
        before = self.session(id)
        self.moved.setdefault(id, self.sessions.get(id))
        self.sessions[id] = Session(before.answered if answered is None else answered, closed or before.closed)

    def commit(self) -> bool:
        """Make the turn durable, if it wrote anything, and say whether it did; raises DbError."""
        wrote = self.store.begun
        if wrote:
            self.store.commit()
            self.commit_no += 1
        self.moved.clear()
        return wrote

    def rollback(self, mono: float) -> None:
        """Undo the turn, in the file and in memory."""
        self.store.rollback()
        for id, before in self.moved.items():
            if before is None:
                self.sessions.pop(id, None)
            else:
                self.sessions[id] = before
        self.moved.clear()
        self.ended.clear()
        self.load(mono)

    def due_at(self, run_at: int) -> None:
        """Note that a job is scheduled for then."""
        if self.next_due is None or run_at < self.next_due:
            self.next_due = run_at

    def note_end(self, id: bytes) -> None:
        """Note that a job has ended, if somebody waits for it."""
        if id in self.awaited:
            self.ended.add(id)

    # -- the end of a job that waits -------------------------------------------------------------------------------

    def end_waiting(self, jobs: Sequence[Waiting], state: int, reason: str, wall: int) -> None:
        """Jobs that wait are dead, because they expired, or cancelled; their keys are free."""
        if not jobs:
            return
        expired = state == DEAD
        self.store.begin()
        change, ids = (state, expired, wall, reason), [job.id for job in jobs]
        self.store.each(END_WAITING, change, ids)
        for job in jobs:
            self.free_key(job.task, job.key)
            if job.state == READY:
                self.lines.leave(job.id, job.queue)
        self.ended |= self.awaited.keys() & ids
        for (queue, before), n in Counter((job.queue, job.state) for job in jobs).items():
            tally = self.ledger.queues[queue]
            tally[STATE_NAMES[before]] -= n
            tally[STATE_NAMES[state]] += n
            tally["expired"] += n * expired

    # -- the end of a hand-out ------------------------------------------------------------------------------------

    def end_done(self, done: Sequence[tuple[Lease, bytes | None]], wall: int) -> None:
        """Work is done, with these results: the jobs' rows keep hand-out and result, and let go of the body.

        The leases are out of the book already.
        """
        if not done:
            return
        self.store.begin()
        self.store.each(END_DONE, (wall, wall, self.commit_no), [lease.id for lease, result in done if result is None])
        results = [(result, lease.id) for lease, result in done if result is not None]
        if results:
            self.store.many(END_DONE_WITH, [(wall, wall, self.commit_no, *result) for result in results])
        for lease, _ in done:
            if lease.big:
                self.store.execute("DELETE FROM bodies WHERE id = ?", (lease.big,))
            if lease.key is not None:
                self._key_after_done(lease.task, lease.key, wall)
        for (queue, worker), n in Counter([(lease.queue, lease.worker) for lease, _ in done]).items():
            self._count_ends(queue, worker, H_DONE, "done", n)
        if self.awaited:
            self.ended |= self.awaited.keys() & [lease.id for lease, _ in done]

    def end_dead(
        self,
        lease: Lease,
        how: int,
        reason: str,
        error: bytes | None,
        wall: int,
        *,
        cause: str = "",
        attempt: bool = True,
    ) -> None:
        """The job has failed for good, with or without an attempt; its key is free."""
        self._end(lease, how, DEAD, cause or reason, error, wall, ended_at=wall, reason=reason, attempt=attempt)
        self.free_key(lease.task, lease.key)
        self.note_end(lease.id)

    def end_cancelled(self, lease: Lease, how: int, reason: str, wall: int, error: bytes | None = None) -> None:
        """The job was cancelled while it ran; its key is free."""
        self._end(lease, how, CANCELLED, reason, error, wall, ended_at=wall, reason=reason)
        self.free_key(lease.task, lease.key)
        self.note_end(lease.id)

    def end_scheduled(self, lease: Lease, how: int, run_at: int, cause: str, error: bytes | None, wall: int) -> None:
        """The job runs again at `run_at`."""
        self._end(lease, how, SCHEDULED, cause, error, wall, run_at=run_at)
        self.due_at(run_at)

    def end_ready(self, lease: Lease, how: int, cause: str, wall: int) -> None:
        """The job is given back and keeps its place in the line."""
        self._end(lease, how, READY, cause, None, wall)
        self.lines.enlist(lease.queue, lease.priority, lease.place)
        self.woken.add(self.store.queue_names[lease.queue])

    def cut_off(self, lease: Lease, how: int, cause: str, wall: int) -> None:
        """The hand-out ended without the worker's word: given back, or dead at the last loss, or cancelled."""
        if lease.cancel:
            self.end_cancelled(lease, how, "cancelled while it ran", wall)
        elif how in LOSSES and lease.losses + 1 >= lease.max_losses:
            self.end_dead(lease, how, f"worker lost ({cause})", None, wall, cause=cause)
        else:
            self.end_ready(lease, how, cause, wall)

    def _end(
        self,
        lease: Lease,
        how: int,
        state: int,
        cause: str,
        error: bytes | None,
        wall: int,
        *,
        run_at: int | None = None,
        ended_at: int | None = None,
        reason: str | None = None,
        attempt: bool = True,
    ) -> None:
        lost = how in LOSSES
        attempt = attempt and how in ATTEMPTS
        self.store.begin()
        self.store.execute(
            END_OTHERWISE,
            (
                state,
                int(attempt),
                int(lost),
                run_at,
                ended_at,
                reason,
                wall,
                self.commit_no,
                how,
                cause,
                error,
                lease.id,
            ),
        )
        self._count_ends(lease.queue, lease.worker, how, STATE_NAMES[state], 1)
        self.leases.remove(lease)

    def _count_ends(self, queue_id: int, worker_id: int, how: int, state: str, n: int) -> None:
        queue, worker, end = self.ledger.queues[queue_id], self.ledger.workers[worker_id], "/" + HOW_NAMES[how]
        queue["running"] -= n
        queue[state] += n
        queue[end] += n
        worker["running"] -= n
        worker[end] += n

    # -- keys -----------------------------------------------------------------------------------------------------

    def free_key(self, task: str, key: str | None) -> None:
        """Let go of an explicit key at once."""
        if key is not None:
            self.store.execute("DELETE FROM keys WHERE task = ? AND key = ?", (task, key))
            self.id_like_keys -= len(key) == ID_DIGITS

    def _key_after_done(self, task: str, key: str, wall: int) -> None:
        if self.retention.key_window > 0:
            free_at = wall + self.retention.key_window
            self.store.execute("UPDATE keys SET free_at = ? WHERE task = ? AND key = ?", (free_at, task, key))
        else:
            self.free_key(task, key)


ID_DIGITS = 32
LAST_MOMENT = 2**63 - 1
"""The latest time that the store can hold, in milliseconds."""


def moment_after(wall: int, delay: int) -> int:
    """Return `wall` + `delay` (milliseconds), or the last moment there is: a longer wait is no error of the store."""
    return min(wall + delay, LAST_MOMENT)


RUNNING_LEASES = """
    SELECT id, number, session, worker, take, hold_vt, queue, task, key, fingerprint, attempts, losses, max_attempts,
           max_losses, big, priority, place, cancel
    FROM jobs WHERE state = 3
"""

END_WAITING = "UPDATE jobs SET state = ?, expired = ?, ended_at = ?, reason = ?, run_at = NULL"

END_DONE = """
    UPDATE jobs SET state = 4, attempts = attempts + 1, ended_at = ?, end_at = ?, end_commit = ?, how = 1,
                    body = x'', big = 0
"""
END_DONE_WITH = f"{END_DONE}, result = ? WHERE id = ?"

END_OTHERWISE = """
    UPDATE jobs SET state = ?, listed = 1, attempts = attempts + ?, losses = losses + ?, run_at = ?, ended_at = ?,
                    reason = ?, end_at = ?, end_commit = ?, how = ?, cause = ?, error = ?
    WHERE id = ?
"""
