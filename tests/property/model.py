"""A small model of the queue, written from the protocol's rules: plain dictionaries, no store, nothing fast.

It predicts the answer to every line and every count of the record.  Where the rules leave a choice to the engine
(which queue a take begins with, when a sweep removes what is old) the model checks that the choice is a lawful one
and then follows it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tenure.engine.adding import AddAnswer, Closed, Conflict, Created, Exists
from tenure.engine.core import Retention
from tenure.engine.settling import ByeAnswer, Held, SettleAnswer
from tenure.wire.commands import Add, Bye, ExtendItem, Job, QueueVerb, Settle, Take, Untake

FLOOR_MS = 600_000
REPEATED = {
    "done": {"done": "done"},
    "retry": {"retried": "scheduled", "dead": "dead", "cancelled": "cancelled"},
    "release": {"released": "released", "cancelled": "cancelled"},
    "dead": {"dead": "dead"},
    "cancel": {"cancelled": "cancelled"},
}
"""What a repeated settlement is answered, by how its hand-out had ended; anything else is too late."""


@dataclass
class HandOut:
    """One hand-out; `end` is monotonic seconds, `vt` milliseconds."""

    session: bytes
    worker: str
    take: int
    vt: int
    end: float
    how: str | None = None
    late: bool = False


@dataclass
class ModelJob:
    """A job with everything that happened to it."""

    add: Add
    state: str
    place: int
    run_at: int | None
    expires: int | None
    attempts: int = 0
    losses: int = 0
    cancel: int = 0
    ended_at: int = 0
    expired: bool = False
    reason: str = ""
    handouts: list[HandOut] = field(default_factory=list)

    @property
    def running(self) -> HandOut | None:
        last = self.handouts[-1] if self.handouts else None
        return last if last is not None and last.how is None else None


@dataclass
class ModelSession:
    answered: int = 0
    closed: bool = False


class Model:
    """The queue as the rules tell it; `wall` is milliseconds, `mono` seconds."""

    def __init__(self, retention: Retention, wall: int, mono: float) -> None:
        self.retention = retention
        self.wall, self.mono = wall, mono
        self.started = mono
        self.place = 0
        self.jobs: dict[bytes, ModelJob] = {}
        self.aliases: dict[bytes, tuple[bytes, int]] = {}
        self.holds: dict[tuple[str, str], tuple[bytes, bytes, int | None]] = {}
        self.sessions: dict[bytes, ModelSession] = {}
        self.queues: dict[str, Counter[str]] = {}
        self.workers: dict[str, Counter[str]] = {}
        self.paused: set[str] = set()
        self.closed: set[str] = set()

    def count(self, queue: str, **changes: int) -> None:
        self.queues.setdefault(queue, Counter()).update(changes)

    # -- adds -----------------------------------------------------------------------------------------------------

    def add(self, a: Add, *, then: bool = False) -> AddAnswer:
        if a.id in self.jobs:
            return Created(a.id)
        if a.id in self.aliases:
            return Exists(a.id, self.aliases[a.id][0])
        if a.queue in self.closed and not then:
            return Closed(a.id, a.queue)
        key = a.key if a.key is not None else a.id.hex()
        holder = self.holder(a.task, key)
        if holder is not None and holder[1] != a.fingerprint:
            return Conflict(a.id, holder[0], key)
        if holder is not None:
            self.aliases[a.id] = (holder[0], self.wall)
            self.count(a.queue, duplicates=1)
            return Exists(a.id, holder[0])
        run_at, expires = self.moment(a.run_at), self.moment(a.expires)
        state = "scheduled" if run_at is not None and run_at > self.wall else "ready"
        self.place += 1
        self.jobs[a.id] = ModelJob(a, state, self.place, run_at, expires)
        if a.key is not None:
            self.holds[a.task, a.key] = (a.id, a.fingerprint, None)
        self.count(a.queue, added=1)
        return Created(a.id)

    def moment(self, when: tuple[int, bool] | None) -> int | None:
        return None if when is None else when[0] + (self.wall if when[1] else 0)

    def holder(self, task: str, key: str) -> tuple[bytes, bytes] | None:
        """Who holds a key of a task: by an explicit key, or by an id that serves as one."""
        held = self.holds.get((task, key))
        if held is not None and (held[2] is None or held[2] > self.wall):
            return held[0], held[1]
        for id, job in self.jobs.items():
            automatic = job.add.key is None and job.add.task == task and id.hex() == key
            if automatic and job.state not in ("dead", "cancelled", "purged"):
                return id, job.add.fingerprint
        return None

    def free_key(self, job: ModelJob) -> None:
        if job.add.key is not None:
            held = self.holds.pop((job.add.task, job.add.key))
            assert held[0] == job.add.id, "a job gave back a key that another one holds"

    # -- takes ----------------------------------------------------------------------------------------------------

    def session(self, id: bytes) -> ModelSession:
        return self.sessions.setdefault(id, ModelSession())

    def refuse_take(self, session: bytes, t: Take) -> str | None:
        """`closed`, `stale`, `again`, or None when the take may grant."""
        known = self.session(session)
        if known.closed:
            return "closed"
        if t.number < known.answered:
            return "stale"
        return "again" if t.number == known.answered else None

    def held_by(self, session: bytes, number: int) -> dict[tuple[bytes, int], HandOut]:
        """The hand-outs of one take that still run."""
        found = {}
        for id, job in self.jobs.items():
            last = job.running
            if last is not None and last.session == session and last.take == number:
                found[id, len(job.handouts)] = last
        return found

    def line(self, queue: str) -> list[ModelJob]:
        """What waits in a queue, in the order in which it has to be handed out; nothing while it is paused."""
        if queue in self.paused:
            return []
        waiting = [job for job in self.jobs.values() if job.state == "ready" and job.add.queue == queue]
        return sorted(waiting, key=lambda job: (-job.add.priority, job.place))

    def granted(self, session: bytes, worker: str, t: Take, jobs: list[Job], expired: set[bytes]) -> None:
        """Check what a take was given, and follow it; `expired` are the jobs that it found too late to start."""
        fresh: dict[str, int] = {}
        for queue in dict.fromkeys(t.queues):
            given = [job.id for job in jobs if job.queue == queue]
            waiting = self.line(queue)
            alive = [job for job in waiting if job.expires is None or job.expires > self.wall]
            assert given == [job.add.id for job in alive[: len(given)]], "not the head of the line"
            fresh[queue] = len(alive) - len(given)
            passed = waiting[: waiting.index(self.jobs[given[-1]])] if given else []
            must = {job.add.id for job in passed} - set(given)
            assert must <= expired, "an expired job was passed over"
        assert sum(1 for _ in jobs) == t.limit or not any(fresh.values()), "jobs were left though there was room"
        shares = Counter(job.queue for job in jobs)
        for one in fresh if not expired else ():  # what is found too late to start takes a turn all the same
            for other, left in fresh.items():
                assert shares[one] <= shares[other] + 1 or not left, "the queues were not served in turn"
        for id in expired:
            job = self.jobs[id]
            assert job.add.queue in t.queues
            assert job.state == "ready"
            assert self.is_late(job)
            self.end_waiting(job, "dead", "expired")
        for given_job in jobs:
            self.hand_out(session, worker, t, given_job)

    def is_late(self, job: ModelJob) -> bool:
        """Whether a job that waits must not start any more."""
        return job.state in ("scheduled", "ready") and job.expires is not None and job.expires <= self.wall

    def end_waiting(self, job: ModelJob, state: str, reason: str) -> None:
        job.state, job.expired, job.ended_at, job.reason = state, state == "dead", self.wall, reason
        job.run_at = None
        self.free_key(job)

    def hand_out(self, session: bytes, worker: str, t: Take, given: Job) -> None:
        job = self.jobs[given.id]
        assert job.running is None, "handed out while another holds it"
        vt = job.add.vt or t.vt
        job.state = "running"
        job.handouts.append(HandOut(session, worker, t.number, vt, self.mono + vt / 1000))
        assert given.number == len(job.handouts)
        assert given.vt == vt
        assert given.attempt == job.attempts + 1
        assert given.losses == job.losses
        assert given.body == job.add.body
        assert (given.task, given.key, given.priority) == (job.add.task, job.add.key, job.add.priority)
        self.count(job.add.queue, handed_out=1)
        self.workers.setdefault(worker, Counter())["handed_out"] += 1

    # -- the ends of a hand-out -----------------------------------------------------------------------------------

    def end(
        self, job: ModelJob, how: str, state: str, reason: str = "", delay: int | None = None, ran: bool = True
    ) -> None:
        last = job.running
        assert last is not None
        last.how = how
        job.state = state
        job.attempts += ran and how in ("done", "retried", "dead", "cancelled")
        job.losses += how in ("lost", "returned")
        job.run_at = None if delay is None else self.wall + delay
        if state in ("done", "dead", "cancelled"):
            job.ended_at, job.reason = self.wall, reason
        if state in ("dead", "cancelled"):
            self.free_key(job)
        elif state == "done" and job.add.key is not None:
            if self.retention.key_window:
                free_at = self.wall + self.retention.key_window
                self.holds[job.add.task, job.add.key] = (job.add.id, job.add.fingerprint, free_at)
            else:
                self.free_key(job)
        self.count(job.add.queue, **{f"/{how}": 1})
        self.workers.setdefault(last.worker, Counter())[f"/{how}"] += 1

    def cut_off(self, job: ModelJob, how: str, cause: str) -> None:
        if job.cancel:
            self.end(job, how, "cancelled")
        elif how != "left" and job.losses + 1 >= job.add.max_losses:
            self.end(job, how, "dead", f"worker lost ({cause})")
        else:
            self.end(job, how, "ready")

    def settle(self, session: bytes, s: Settle) -> SettleAnswer:
        if self.session(session).closed or (s.session is not None and self.session(s.session).closed):
            return SettleAnswer("closed")
        job = self.jobs.get(s.id)
        if job is None or s.number > len(job.handouts):
            return SettleAnswer("gone")
        handout = job.handouts[s.number - 1]
        mine = s.session is None or s.session == handout.session
        if handout.how is None:
            if not mine:
                return SettleAnswer("gone")
            return SettleAnswer("ok", self.settle_now(job, s), tuple(self.add(a, then=True) for a in s.then))
        if mine and handout.how in REPEATED[s.verb]:
            return SettleAnswer("ok", REPEATED[s.verb][handout.how], tuple(self.add(a, then=True) for a in s.then))
        if s.verb == "release":
            return SettleAnswer("lost")
        if not handout.late:
            handout.late = True
            self.count(job.add.queue, refused=1)
            self.workers.setdefault(handout.worker, Counter())["refused"] += 1
        return SettleAnswer("refused", handout.how)

    def settle_now(self, job: ModelJob, s: Settle) -> str:
        if s.verb == "done":
            self.end(job, "done", "done")
        elif s.verb == "dead":
            self.end(job, "dead", "dead", s.reason, ran=s.ran)
        elif s.verb == "cancel" or job.cancel:
            self.end(job, "cancelled", "cancelled")
        elif s.verb == "release":
            self.end(job, "released", "scheduled" if s.delay else "ready", delay=s.delay or None)
            return "released"
        elif job.attempts + 1 >= job.add.max_attempts:
            self.end(job, "dead", "dead")
        else:
            self.end(job, "retried", "scheduled", delay=s.delay)
        return job.state

    def extend(self, session: bytes, items: tuple[ExtendItem, ...], arrived: float) -> list[Held] | None:
        if self.session(session).closed:
            return None
        answers = []
        for item in items:
            job = self.jobs.get(item.id)
            last = job.running if job is not None else None
            if job is None or last is None or len(job.handouts) != item.number:
                answers.append(Held(None))
                continue
            last.end = max(last.end, self.mono + last.vt / 1000)
            answers.append(Held(int((last.end - arrived) * 1000), job.cancel))
        return answers

    def bye(self, b: Bye) -> list[ByeAnswer]:
        self.session(b.session).closed = True
        for job in self.jobs.values():
            last = job.running
            if last is not None and last.session == b.session:
                self.cut_off(job, b.end, b.cause)
        return [self.ended(id, number) for id, number in b.receipts]

    def untake(self, u: Untake) -> None:
        session = self.session(u.session)
        if session.closed:
            return
        session.answered = max(session.answered, u.number)
        for id, number in self.held_by(u.session, u.number):
            if (id, number) not in u.receipts:
                self.cut_off(self.jobs[id], "left", u.cause)

    def ended(self, id: bytes, number: int) -> ByeAnswer:
        job = self.jobs.get(id)
        if job is None or number > len(job.handouts) or job.handouts[number - 1].how is None:
            return ByeAnswer(None)
        return ByeAnswer(job.handouts[number - 1].how, job.handouts[number - 1].late)

    # -- the operator ---------------------------------------------------------------------------------------------

    def cancel_job(self, id: bytes, terminate: bool) -> str | None:
        job = self.jobs.get(self.aliases[id][0] if id in self.aliases else id)
        if job is None:
            return None
        if job.state in ("scheduled", "ready"):
            self.end_waiting(job, "cancelled", "cancelled")
            return "cancelled"
        if job.state != "running":
            return "already dead" if job.state == "purged" else f"already {job.state}"
        job.cancel = max(job.cancel, 2 if terminate else 1)
        return "asked"

    def requeue(self, id: bytes) -> str | bytes | None:
        job = self.jobs.get(id)
        if job is None:
            return None
        if job.state != "dead":
            return f"already {job.state}"
        holder = self.holder(job.add.task, job.add.key if job.add.key is not None else id.hex())
        if holder is not None:
            return holder[0]
        self.place += 1
        job.state, job.place, job.attempts, job.losses, job.cancel = "ready", self.place, 0, 0, 0
        job.expired, job.expires, job.run_at = False, None, None
        if job.add.key is not None:
            self.holds[job.add.task, job.add.key] = (id, job.add.fingerprint, None)
        return "ready"

    def purge(self, id: bytes) -> str | None:
        job = self.jobs.get(id)
        if job is None:
            return None
        if job.state != "dead":
            return f"already {job.state}"
        job.state, job.ended_at, job.expired = "purged", self.wall, False
        return "purged"

    def switch(self, verb: QueueVerb, queue: str) -> str | None:
        if queue not in self.queues:
            return None
        stopped = self.paused if verb in ("pause", "resume") else self.closed
        (stopped.add if verb in ("pause", "close") else stopped.discard)(queue)
        return {"pause": "paused", "resume": "resumed", "close": "closed", "open": "open"}[verb]

    def purge_queue(self, queue: str, after: bytes | None) -> tuple[int, None] | None:
        if queue not in self.queues:
            return None
        waiting = [
            job
            for id, job in self.jobs.items()
            if id > (after or b"") and job.add.queue == queue and job.state in ("scheduled", "ready")
        ]
        for job in waiting:
            self.end_waiting(job, "cancelled", "purged from its queue")
        return len(waiting), None

    # -- time -----------------------------------------------------------------------------------------------------

    def promote(self) -> int:
        due = [job for job in self.jobs.values() if job.state == "scheduled" and (job.run_at or 0) <= self.wall]
        for job in sorted(due, key=lambda job: (job.run_at, job.add.id)):
            self.place += 1
            job.state, job.place, job.run_at = "ready", self.place, None
        return len(due)

    def expire(self) -> int:
        late = [job for job in self.jobs.values() if self.is_late(job)]
        for job in late:
            self.end_waiting(job, "dead", "expired")
        return len(late)

    def run_out(self, before: float) -> int:
        over = [job for job in self.jobs.values() if job.running is not None and job.running.end <= before]
        for job in over:
            self.cut_off(job, "returned", "the lease ran out")
        return len(over)

    def renew(self) -> None:
        """Every running lease has its full time again."""
        for job in self.jobs.values():
            if job.running is not None:
                job.running.end = max(job.running.end, self.mono + job.running.vt / 1000)

    def remember_sessions(self) -> None:
        """A restart: what is known of the sessions is what the running hand-outs tell."""
        self.sessions.clear()
        for job in self.jobs.values():
            if job.running is not None:
                known = self.session(job.running.session)
                known.answered = max(known.answered, job.running.take)

    def forget_session(self, id: bytes) -> None:
        """The server lets go of a session without connections, unless it still holds jobs."""
        if not any(job.running is not None and job.running.session == id for job in self.jobs.values()):
            self.sessions.pop(id, None)

    def is_old(self, id: bytes) -> bool:
        """Whether a sweep may remove this job."""
        job = self.jobs[id]
        kept = {"done": self.retention.rows, "cancelled": self.retention.rows, "purged": FLOOR_MS}.get(job.state)
        return kept is not None and job.ended_at <= self.wall - kept

    # -- the counts -----------------------------------------------------------------------------------------------

    def sweep_away(self, id: bytes) -> None:
        """A sweep removed this job; its counts stay for ever."""
        job = self.jobs.pop(id)
        self.count(job.add.queue, **{"swept:" + job.state: 1})

    def record(self) -> dict[str, dict[str, dict[str, int]]]:
        """The counts that the record has to show: only those that are not 0."""
        queues = {name: Counter(tally) for name, tally in self.queues.items()}
        workers = {name: Counter(tally) for name, tally in self.workers.items()}
        for tally in queues.values():
            for state in ("done", "cancelled", "purged"):
                tally[state] += tally.pop("swept:" + state, 0)
        for job in self.jobs.values():
            queues[job.add.queue][job.state] += 1
            queues[job.add.queue]["expired"] += job.expired
            if job.running is not None:
                workers[job.running.worker]["running"] += 1
        return {
            "queues": {name: {k: n for k, n in tally.items() if n} for name, tally in queues.items()},
            "workers": {name: {k: n for k, n in tally.items() if n} for name, tally in workers.items()},
        }
