"""The queue itself: plain method calls over one SQLite connection, both times passed in.

`wall` is milliseconds since the epoch, for due times and for people; `mono` is seconds of a monotonic clock, for
leases.  The calls of one turn share a transaction: nothing of it may be answered before `commit` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenure.engine import adding, handing, operator, queues, record, settling, sweep, taking, waiting
from tenure.engine.adding import AddAnswer
from tenure.engine.core import Core, Retention
from tenure.engine.log import Log
from tenure.engine.settling import ByeAnswer, Held, SettleAnswer
from tenure.engine.space import RESERVE, Space
from tenure.engine.store import Db, DbError, Durability, Store, connect, copied, unusable
from tenure.engine.taking import TakeAnswer
from tenure.wire.commands import Add, Bye, ExtendItem, Job, QueueVerb, Settle, StateLine, Take, Untake

RUN_OUT_BATCH = 500
"""Leases that one turn ends at most: what arrives meanwhile waits for these only."""


class Engine:
    """All rules of the queue, without network; the server and the tests drive it.

    `path` is the data file or ":memory:".  `reserve` is the bytes of free space below which adds are refused.  Raises
    StoreError when the file cannot be used.
    """

    def __init__(
        self,
        path: str,
        *,
        wall: int,
        mono: float,
        durability: Durability = "full",
        retention: Retention | None = None,
        reserve: int = RESERVE,
    ) -> None:
        self._store = Store(path, durability)
        try:
            self._core = Core(self._store, retention or Retention(), reserve, mono)
        except DbError as error:
            self._store.close()
            raise unusable(path, error) from None
        self._sweeper = sweep.Sweeper(self._core, wall, mono)
        self._log: Log | None = None

    # -- the lines ------------------------------------------------------------------------------------------------

    def add(self, a: Add, wall: int) -> AddAnswer:
        """Store a job once, if its queue is open and there is room; see `adding.add_new`."""
        return adding.add_new(self._core, a, wall)

    def add_all(self, adds: Sequence[Add], wall: int) -> list[AddAnswer]:
        """Store jobs as `add` does one after the other; see `adding.add_all`."""
        return adding.add_all(self._core, adds, wall)

    def take(
        self, session: bytes, worker: str, t: Take, *, arrived: float, wall: int, mono: float, final: bool
    ) -> TakeAnswer:
        """Hand jobs out; None when the take may be parked; see `taking.take`."""
        return taking.take(self._core, session, worker, t, arrived=arrived, wall=wall, mono=mono, final=final)

    def hand_over(
        self, a: Add, session: bytes, worker: str, t: Take, *, arrived: float, wall: int, mono: float
    ) -> Job | None:
        """Store a job and hand it out to a take that waits, where that can be done in one; see `handing.hand_over`."""
        return handing.hand_over(self._core, a, session, worker, t, arrived=arrived, wall=wall, mono=mono)

    def settle(self, session: bytes, lines: Sequence[Settle], wall: int) -> list[SettleAnswer]:
        """End hand-outs by the worker's word; see `settling.settle`."""
        return settling.settle(self._core, session, lines, wall)

    def extend(self, session: bytes, items: Sequence[ExtendItem], arrived: float, mono: float) -> list[Held] | None:
        """Hold receipts longer; None when the session is closed."""
        return settling.extend(self._core, session, items, arrived, mono)

    def bye(self, b: Bye, wall: int) -> list[ByeAnswer]:
        """Close a session and give back all that it holds."""
        return settling.bye(self._core, b, wall)

    def untake(self, u: Untake, wall: int) -> None:
        """Give back what a take was given that is not read."""
        settling.untake(self._core, u, wall)

    def cancel_job(self, id: bytes, terminate: bool, wall: int) -> str | None:
        """The caller's cancel; the answer's words, None for an unknown id."""
        return operator.cancel_job(self._core, id, terminate, wall)

    def requeue(self, id: bytes, wall: int) -> str | bytes | None:
        """Put a dead job back; bytes are the id of the other holder of its key, None is an unknown id."""
        return operator.requeue(self._core, id, wall)

    def purge(self, id: bytes, wall: int) -> str | None:
        """Take a job off the dead list for good."""
        return operator.purge(self._core, id, wall)

    def show(self, id: bytes) -> dict[str, Any] | None:
        """All that is known of a job."""
        return operator.show(self._core, id)

    def switch(self, verb: QueueVerb, queue: str) -> str | None:
        """Pause, resume, close or open a queue; the answer's word, None for a queue that is not there."""
        return queues.switch(self._core, verb, queue)

    def purge_queue(self, queue: str, after: bytes | None, wall: int) -> tuple[int, bytes | None] | None:
        """Call off a part of what waits in a queue; see `queues.purge`."""
        return queues.purge(self._core, queue, after, wall)

    def is_paused(self, queue: str) -> bool:
        """Whether nothing of this queue is handed out."""
        return queue in self._core.paused

    def is_closed_for_adds(self, queue: str) -> bool:
        """Whether this queue takes no new jobs."""
        return queue in self._core.closed

    def unknown_tasks(self, wall: int) -> dict[str, dict[str, int]]:
        """How many jobs of which tasks wait in each queue for a worker that knows them."""
        return queues.unknown_tasks(self._core, wall)

    def browse_dead(self, queue: str | None, limit: int, after: bytes | None) -> list[dict[str, Any]]:
        """Dead jobs in the order of their ids."""
        return operator.browse_dead(self._core, queue, limit, after)

    # -- waiting for jobs to end ------------------------------------------------------------------------------------

    def states(self, ids: Sequence[bytes], wall: int) -> list[StateLine]:
        """What is known of each job, in order; see `waiting.states`."""
        return waiting.states(self._core, ids, wall)

    def jobs_of(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """The jobs that ids stand for, which differ where an id is a duplicate's."""
        return waiting.jobs_of(self._core, ids)

    def watch(self, jobs: Mapping[bytes, object]) -> None:
        """Note from now on which of these jobs end; the mapping may change while it is watched."""
        self._core.awaited = jobs

    def ended(self) -> set[bytes]:
        """Watched jobs that have ended since the last call."""
        ended = self._core.ended
        if ended:
            self._core.ended = set()
        return ended

    # -- sessions -------------------------------------------------------------------------------------------------

    def is_closed(self, session: bytes) -> bool:
        """Whether this session was said bye to."""
        return self._core.session(session).closed

    def answered(self, session: bytes) -> int:
        """The last take number of the session that was answered; 0: none."""
        return self._core.session(session).answered

    def forget_session(self, session: bytes) -> bool:
        """Let go of a session's memory, once no line of it can arrive any more; False: it still holds jobs."""
        return self._core.forget_session(session)

    def sessions(self) -> list[bytes]:
        """All sessions that are remembered."""
        return list(self._core.sessions)

    # -- time -----------------------------------------------------------------------------------------------------

    def promote(self, wall: int) -> int:
        """Make due jobs ready."""
        return sweep.promote(self._core, wall)

    def run_out(self, before: float, wall: int) -> int:
        """End leases that ran out at `before` or earlier, a bounded number a call; returns how many."""
        return settling.run_out(self._core, before, wall, RUN_OUT_BATCH)

    def renew_leases(self, mono: float) -> None:
        """Give every running lease its full time again: the server was not answering."""
        self._core.leases.renew_all(mono)

    def expire(self, wall: int) -> int:
        """End jobs that wait past their latest start, a bounded number a call; returns how many."""
        return sweep.expire(self._core, wall)

    @property
    def late(self) -> bool:
        """Whether there are more jobs past their latest start than one call ends."""
        return self._core.late

    def sweep(self, wall: int, mono: float) -> int:
        """One small step of removing what has been kept long enough."""
        return self._sweeper.step(wall, mono)

    @property
    def sweeping(self) -> bool:
        """Whether the next step of a sweep is wanted soon."""
        return self._sweeper.busy

    def next_lease_end(self) -> float | None:
        """Monotonic seconds at which the next lease may run out."""
        return self._core.leases.next_end()

    def next_due(self) -> int | None:
        """Wall-clock milliseconds at which the next scheduled job falls due."""
        return self._core.next_due

    def woken(self) -> set[str]:
        """Queues in which jobs have become ready since the last call."""
        woken = self._core.woken
        if not woken:
            return woken
        self._core.woken = set()
        return woken

    def has_ready(self, queue: str) -> bool:
        """Whether a job waits in this queue that may be handed out."""
        id = self._store.queue_ids.get(queue)
        if id is None or id not in self._core.ledger.queues or queue in self._core.paused:
            return False
        return self._core.ledger.queues[id]["ready"] > 0

    # -- room -----------------------------------------------------------------------------------------------------

    @property
    def space(self) -> Space:
        """What is free for the data file."""
        return self._core.space

    def look_at_space(self, mono: float) -> None:
        """See how much room there is, between two turns; takes that found none are served again once there is."""
        held = self._core.space.holding
        self._core.space.look(mono)
        if held and not self._core.space.holding:
            self._core.wake_all()

    # -- the turn -------------------------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Make all calls since the last commit durable; False: there was nothing to write.

        Raises DbError (then call `rollback`).
        """
        return self._core.commit()

    def rollback(self, mono: float) -> None:
        """Undo all calls since the last commit, in the file and in memory."""
        self._core.rollback(mono)
        self._sweeper.forget()

    def close(self) -> None:
        """Let go of the file, with everything in it that was committed."""
        if self._log is not None:
            self._log.close()
        self._store.close()

    def own_log(self) -> Log | None:
        """Leave it to the caller from now on when the write-ahead log is folded into the file; None: there is none."""
        if self._log is None and self._store.path != ":memory:":
            self._log = Log(self._store)
        return self._log

    # -- the record -----------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """The ledger of all jobs and hand-outs, in constant time."""
        return self._core.ledger.as_record()

    def snapshot(self) -> tuple[Db, dict[str, Any]]:
        """A reading connection that stands at the last commit, and the record at that commit; for `record.verify`.

        Call it between turns; the connection may be used from another thread and is the caller's to close.
        """
        if self._store.path == ":memory:":
            return copied(self._store.db), self.record()
        db = connect(self._store.path, read_only=True)
        try:
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM meta").fetchone()  # the first read is what fixes the snapshot
        except DbError:
            db.close()
            raise
        return db, self.record()

    def verify(self) -> dict[str, Any]:
        """Recount the record from the rows, here and now."""
        db, claimed = self.snapshot()
        try:
            return record.verify(db, claimed)
        finally:
            db.close()

    @property
    def notices(self) -> list[str]:
        """What was found and done when the file was opened that a person should know."""
        return self._store.notices

    @property
    def store_id(self) -> str:
        """The data file's own identity, made with it."""
        return self._store.id
