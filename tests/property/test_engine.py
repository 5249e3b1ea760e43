"""The engine against a model of the rules: every verb, every line again at any time, time passing, restarts, kills."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenure.engine.adding import Created, Exists
from tenure.engine.core import Retention
from tenure.engine.engine import Engine
from tenure.engine.settling import SettleAnswer
from tenure.engine.store import DbError
from tenure.wire.commands import (
    Add,
    Bye,
    CancelJob,
    Extend,
    ExtendItem,
    Purge,
    PurgeQueue,
    Requeue,
    Settle,
    Switch,
    Take,
    Untake,
)  # fmt: skip
from tests.property import moves
from tests.property.model import FLOOR_MS, Model
from tests.stage.sizes import sized

KEEPER = b"k" * 16
QUEUES = ["default", "billing", "mail"]
TASKS = ["shop.charge", "shop.mail"]
FINGERPRINTS = [b"f" * 16, b"g" * 16]
STEPS = [
    *["add"] * 4,
    *["work"] * 5,
    *["take", "take", "hand_over", "hand_over"],
    *["settle"] * 7,
    *["settle_together"] * 2,
    *["extend", "bye", "untake", "cancel_job", "requeue", "requeue", "purge"],
    *["switch", "purge_queue"],
    *["again"] * 5,
    *["failing_turn"] * 3,
    *["kill", "restart", "forget_session"],
    *["time_passes"] * 3,
    *["leases_run_out"] * 2,
    *["renew_leases", "sweep", "sweep", "expire"],
    *["the_books_match_a_fresh_start", "a_job_is_shown"],
]
"""What may happen in a step; what stands here more often happens more often."""
FEW_IN_MEMORY = 4
"""Jobs that wait in memory at most: so few that some wait there and others are listed."""
Line = Add | Take | Settle | Extend | Bye | Untake | CancelJob | Requeue | Purge | Switch | PurgeQueue
Sent = tuple[bytes, Line]
"""A line and the session on whose connection it was sent."""
STATES = ["", "scheduled", "ready", "running", "done", "dead", "cancelled", "purged"]
MOMENTS = st.none() | st.tuples(st.sampled_from([1, 2_000, 60_000]), st.just(True))
# Described once, for hypothesis looks through every new description, which takes longer than to draw from it.
ADDS = st.tuples(
    st.sampled_from([0, 0, 0, -86_400_000, 86_400_000]),  # clients' clocks are wrong at times
    st.sampled_from([None, None, "a", "b", "like an id", "LIKE AN ID"]),
    st.sampled_from(QUEUES),
    st.sampled_from(TASKS),
    st.sampled_from([FINGERPRINTS[0], *FINGERPRINTS]),
    st.sampled_from([b"", b"small", b"big" * 500]),
    st.sampled_from([5, 5, 0, 9]),
    MOMENTS,
    MOMENTS,
    st.sampled_from([None, None, 700]),
    st.sampled_from([20, 1, 2]),
    st.sampled_from([5, 1, 2]),
)
"""What an add says: how far off its client's clock is, its key, and the rest in the order of `Add`."""


class EngineMachine(RuleBasedStateMachine):
    """Drives an engine and the model with the same lines and holds them against each other after each."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-property-"))
        self.files = 0
        self.path = self.folder / "0.db"
        self.wall, self.mono = 1_700_000_000_000, 5_000.0
        self.sent: list[Sent] = []
        self.first_answers: dict[int, Any] = {}
        self.swept: set[bytes] = set()
        self.ids: list[bytes] = []
        self.living = [bytes([n]) * 16 for n in (1, 2, 3)]
        self.sessions = list(self.living)
        """Every session there ever was; those that were said bye to are not among the living."""
        self.watched: Engine | None = None
        self.awaited: dict[bytes, None] = {}
        self.over: set[bytes] = set()

    @initialize(
        key_window=st.sampled_from([0, 5_000, 86_400_000]),
        result_ttl=st.sampled_from([0, FLOOR_MS, 3_600_000]),
        keys=st.booleans(),
    )
    def start(self, key_window: int, result_ttl: int, keys: bool) -> None:
        self.keys = keys  # while there are some that matter to others, nothing is handed over in one
        self.retention = Retention(result_ttl=result_ttl, key_window=key_window)
        self.model = Model(self.retention, self.wall, self.mono)
        self.engine = self.open(self.path)

    def open(self, path: Path) -> Engine:
        engine = Engine(str(path), wall=self.wall, mono=self.mono, durability="normal", retention=self.retention)
        moves.hold_to_the_table(engine)
        engine._core.lines.most = FEW_IN_MEMORY
        return engine

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        shutil.rmtree(self.folder)

    # One rule for all: of many rules hypothesis leaves most out of an example, and then nothing is ever handed out.
    @rule(data=st.data(), what=st.sampled_from(STEPS))
    def step(self, data: st.DataObject, what: str) -> None:
        getattr(self, what)(data)

    # -- one line, carried out on both sides ----------------------------------------------------------------------

    def carry_out(self, sent: Sent) -> Any:
        """Apply one line to both, compare, and return the answer."""
        session, line = sent
        engine, model, wall = self.engine, self.model, self.wall
        answer: Any
        expected: Any
        match line:
            case Add():
                answer, expected = engine.add(line, wall), model.add(line)
            case Settle():
                (answer,), expected = engine.settle(session, [line], wall), model.settle(session, line)
            case Extend():
                arrived = self.mono - 0.25
                answer = engine.extend(session, line.items, arrived, self.mono)
                expected = model.extend(session, line.items, arrived)
            case Bye():
                answer, expected = engine.bye(line, wall), model.bye(line)
            case Untake():
                answer, expected = engine.untake(line, wall), model.untake(line)  # type: ignore[func-returns-value]
            case CancelJob():
                answer = engine.cancel_job(line.id, line.terminate, wall)
                expected = model.cancel_job(line.id, line.terminate)
            case Requeue():
                answer, expected = engine.requeue(line.id, wall), model.requeue(line.id)
            case Purge():
                answer, expected = engine.purge(line.id, wall), model.purge(line.id)
            case Switch():
                answer, expected = engine.switch(line.verb, line.queue), model.switch(line.verb, line.queue)
            case PurgeQueue():
                answer = engine.purge_queue(line.queue, line.after, wall)
                expected = model.purge_queue(line.queue, line.after)
            case Take():
                return self.carry_out_take(session, line)
        assert answer == expected, line
        return answer

    def carry_out_take(self, session: bytes, t: Take) -> Any:
        worker = _worker(session)
        expected = self.model.refuse_take(session, t)
        final = t.wait == 0
        answer = self.engine.take(session, worker, t, arrived=self.mono, wall=self.wall, mono=self.mono, final=final)
        if expected in ("closed", "stale"):
            assert answer == expected
            return answer
        if expected == "again":
            assert isinstance(answer, list)
            held = self.model.held_by(session, t.number)
            assert {(job.id, job.number) for job in answer} == held.keys()
            for job in answer:
                left = held[job.id, job.number].end - self.mono
                assert abs(job.hold - max(0.0, left) * 1000) <= 1
                assert job.body == self.model.jobs[job.id].add.body
            return answer
        jobs = answer if isinstance(answer, list) else []
        expired = {id for id, job in self.model.jobs.items() if job.state == "ready" and self.state_of(id) == "dead"}
        self.model.granted(session, worker, t, jobs, expired)
        assert (answer is None) == (not jobs and not final)
        if answer is not None:
            self.model.session(session).answered = t.number
        return answer

    def state_of(self, id: bytes) -> str | None:
        row = self.engine._store.row("SELECT state FROM jobs WHERE id = ?", (id,))
        return None if row is None else STATES[row[0]]

    def send(self, session: bytes, line: Line) -> Any:
        """A new line: remember it, so that it can come again at any time."""
        self.sent.append((session, line))
        answer = self.carry_out((session, line))
        self.engine.commit()
        self.first_answers[len(self.sent) - 1] = answer
        return answer

    def pick_job(self, data: st.DataObject) -> bytes:
        return data.draw(st.sampled_from(self.ids)) if self.ids else b"\0" * 16

    def pick_receipt(self, data: st.DataObject) -> tuple[bytes, int]:
        """Mostly one that runs, sometimes an old one, sometimes one that never was."""
        running = [(id, len(job.handouts)) for id, job in self.model.jobs.items() if job.running]
        old: int = data.draw(st.integers(0, 5))
        if running and old > 1:
            return data.draw(st.sampled_from(running))
        ended = [(id, n + 1) for id, job in self.model.jobs.items() for n, h in enumerate(job.handouts) if h.how]
        if ended and old:
            return data.draw(st.sampled_from(ended))
        return self.pick_job(data), data.draw(st.integers(1, 4))

    def pick_session(self, data: st.DataObject) -> bytes:
        """Mostly one that lives, for a closed one is answered the same each time."""
        closed: int = data.draw(st.integers(0, 7))
        return data.draw(st.sampled_from(self.sessions if closed == 0 else self.living))

    def holder(self, id: bytes, number: int) -> bytes | None:
        """The session that was given this hand-out, if there ever was one."""
        job = self.model.jobs.get(id)
        return job.handouts[number - 1].session if job is not None and 0 < number <= len(job.handouts) else None

    # -- rules: the lines -----------------------------------------------------------------------------------------

    def draw_add(self, data: st.DataObject) -> Add:
        age, key, queue, task, fingerprint, body, *options = data.draw(ADDS)
        id = (self.wall + age).to_bytes(6, "big") + len(self.ids).to_bytes(10, "big")
        self.ids.append(id)
        if not self.keys:
            key = None
        elif key in ("like an id", "LIKE AN ID"):
            key = self.pick_job(data).hex() if key.islower() else self.pick_job(data).hex().upper()
        return Add(id, queue, task, fingerprint, body, key, *options)

    def add(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            self.send(KEEPER, self.draw_add(data))

    def work(self, data: st.DataObject) -> None:
        """What workers do all day: take from every queue."""
        session = data.draw(st.sampled_from(self.living))
        number = self.model.session(session).answered + 1
        self.send(session, Take(number, data.draw(st.integers(1, 4)), 0, 30_000, tuple(QUEUES)))

    def take(self, data: st.DataObject) -> None:
        """Any take: old and new numbers, some queues, with and without a wait."""
        session = self.pick_session(data)
        queues = data.draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3))
        limit, wait = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0, 500]))
        step = data.draw(st.sampled_from([1, 1, 1, 1, 0, 2, -1]))
        number = max(1, self.model.session(session).answered + step)
        self.send(session, Take(number, limit, wait, 30_000, tuple(queues)))

    def hand_over(self, data: st.DataObject) -> None:
        """A take waits, and is answered with the next job in one with its add, or the common way."""
        session = data.draw(st.sampled_from(self.living))
        number = self.model.session(session).answered + 1
        queues = data.draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2))
        take = Take(number, data.draw(st.integers(1, 3)), 500, 30_000, tuple(queues))
        if self.send(session, take) is not None:
            return
        known = [line for _, line in self.sent if isinstance(line, Add) and line.queue == queues[0]]
        kind: int = data.draw(st.integers(0, 7))
        if known and kind == 0:
            a = data.draw(st.sampled_from(known))
        else:
            a = self.draw_add(data)._replace(queue=queues[0])
        if kind > 2:  # of the others few can be handed over
            a = a._replace(key=None, body=b"small", run_at=None, expires=None)
        job = self.engine.hand_over(
            a, session, _worker(session), take, arrived=self.mono, wall=self.wall, mono=self.mono
        )
        if job is None:
            self.send(KEEPER, a)
            self.send(session, take)
            return
        assert self.model.add(a) == Created(a.id)
        self.model.granted(session, _worker(session), take, [job], set())
        self.model.session(session).answered = number
        self.engine.commit()
        for sent, answer in (((KEEPER, a), Created(a.id)), ((session, take), [job])):
            self.first_answers[len(self.sent)] = answer
            self.sent.append(sent)

    def settle(self, data: st.DataObject) -> None:
        self.send(*self.draw_settle(data))

    def settle_together(self, data: st.DataObject) -> None:
        """What a worker has in one write: the same receipt may stand in it twice, and old ones, and any other verb."""
        session = self.pick_session(data)
        lines: list[Settle] = []
        for _ in range(data.draw(st.integers(2, 6))):
            plain: int = data.draw(st.integers(0, 5))
            done = Settle("done", *self.pick_receipt(data), body=data.draw(st.sampled_from([None, None, b"result"])))
            lines.append(done if plain else self.draw_settle(data)[1])
        answers = self.engine.settle(session, lines, self.wall)
        assert answers == [self.model.settle(session, line) for line in lines]
        self.engine.commit()
        for line, answer in zip(lines, answers, strict=True):
            self.first_answers[len(self.sent)] = answer
            self.sent.append((session, line))

    def draw_settle(self, data: st.DataObject) -> tuple[bytes, Settle]:
        verb: Any = data.draw(st.sampled_from(["done", "retry", "retry", "release", "dead", "cancel"]))
        delay, then = data.draw(st.sampled_from([0, 3_000])), data.draw(st.integers(0, 2))
        keeper: int = data.draw(st.integers(0, 3))
        id, number = self.pick_receipt(data)
        stranger: int = data.draw(st.integers(0, 7))
        holder = self.holder(id, number)
        session = data.draw(st.sampled_from(self.sessions)) if stranger == 0 or holder is None else holder
        adds = tuple(self.draw_add(data) for _ in range(then)) if verb in ("done", "retry") else ()
        owner = session if keeper == 0 else None
        session = KEEPER if keeper == 0 else session
        error = b"failure" if verb == "retry" else None
        ran = verb != "dead" or delay == 0
        return session, Settle(verb, id, number, delay, "why", error, adds, owner, ran)

    def extend(self, data: st.DataObject) -> None:
        session = self.pick_session(data)
        receipts = [self.pick_receipt(data) for _ in range(data.draw(st.integers(1, 3)))]
        self.send(session, Extend(tuple(ExtendItem(id, number) for id, number in receipts)))

    def bye(self, data: st.DataObject) -> None:
        """A process ends, and another one starts in its place."""
        end: Any = data.draw(st.sampled_from(["left", "lost", "lost"]))
        session = self.pick_session(data)
        if session in self.living:
            self.sessions.append(len(self.sessions).to_bytes(16, "big"))
            self.living[self.living.index(session)] = self.sessions[-1]
        receipts = tuple(self.pick_receipt(data) for _ in range(data.draw(st.integers(0, 2))))
        self.send(KEEPER, Bye(session, end, "SIGKILL", receipts))

    def untake(self, data: st.DataObject) -> None:
        """A process does not listen: one of its takes, perhaps one that never came, goes back but for what it holds."""
        session = self.pick_session(data)
        number = data.draw(st.integers(1, self.model.session(session).answered + 1))
        receipts = tuple(self.pick_receipt(data) for _ in range(data.draw(st.integers(0, 2))))
        self.send(KEEPER, Untake(session, number, "did not listen", receipts))

    def cancel_job(self, data: st.DataObject) -> None:
        self.send(KEEPER, CancelJob(self.pick_job(data), data.draw(st.booleans())))

    def pick_dead(self, data: st.DataObject) -> bytes:
        dead = [id for id, job in self.model.jobs.items() if job.state == "dead"]
        any_job: bool = data.draw(st.booleans())
        return self.pick_job(data) if any_job or not dead else data.draw(st.sampled_from(dead))

    def requeue(self, data: st.DataObject) -> None:
        self.send(KEEPER, Requeue(self.pick_dead(data)))

    def purge(self, data: st.DataObject) -> None:
        self.send(KEEPER, Purge(self.pick_dead(data)))

    def switch(self, data: st.DataObject) -> None:
        """Mostly a queue is let go on, so that it is not stopped for most of the time."""
        verb: Any = data.draw(st.sampled_from(["pause", "close", "resume", "open", "resume", "open"]))
        self.send(KEEPER, Switch(verb, data.draw(st.sampled_from(QUEUES))))

    def purge_queue(self, data: st.DataObject) -> None:
        from_first: bool = data.draw(st.booleans())
        after = None if from_first else self.pick_job(data)
        self.send(KEEPER, PurgeQueue(data.draw(st.sampled_from(QUEUES)), after))

    # -- rules: what goes wrong -----------------------------------------------------------------------------------

    def again(self, data: st.DataObject) -> None:
        """Any line that was ever sent comes once more."""
        if not self.sent:
            return
        settlements = [n for n, (_, line) in enumerate(self.sent) if isinstance(line, Settle)]
        settled: bool = data.draw(st.booleans())
        which = data.draw(st.sampled_from(settlements if settled and settlements else range(len(self.sent))))
        answer = self.carry_out(self.sent[which])
        self.engine.commit()
        self.check_repeat(self.sent[which][1], self.first_answers.get(which), answer)

    def check_repeat(self, line: Line, first: Any, answer: Any) -> None:
        """What the rules promise of a repeat, said once more without the model."""
        match first:
            case Created(id) if id not in self.swept:
                assert answer == first
            case Exists(id) if id in self.model.aliases:
                assert answer == first
            case SettleAnswer("ok" | "refused") if isinstance(line, Settle) and line.id not in self.swept:
                if answer.word != "closed":
                    assert answer[:2] == first[:2]

    def failing_turn(self, data: st.DataObject) -> None:
        """A turn of old and new lines whose commit fails: nothing of it was done."""
        self.undo_after(data, self.fail_commit)

    def kill(self, data: st.DataObject) -> None:
        """The process ends in mid-turn: the next one finds the file as the last commit left it."""
        self.undo_after(data, self.kill_and_open)

    def undo_after(self, data: st.DataObject, fail: Callable[[], None]) -> None:
        before = copy.deepcopy(self.model)
        for _ in range(data.draw(st.integers(0, 4))):
            if not self.sent or data.draw(st.booleans()):
                self.carry_out((KEEPER, self.draw_add(data)))
            else:
                self.carry_out(data.draw(st.sampled_from(self.sent)))
        self.model = before
        fail()
        self.model.renew()

    def fail_commit(self) -> None:
        def refuse() -> None:
            raise DbError("database or disk is full")

        self.engine._store.begin()
        self.engine._store.commit = refuse  # type: ignore[method-assign]  # once, taken back below
        try:
            self.engine.commit()
            raise AssertionError("the commit went through")
        except DbError:
            del self.engine._store.commit
            self.engine.rollback(self.mono)

    def kill_and_open(self) -> None:
        old = self.engine
        copied = self.copy_files()
        old.rollback(self.mono)
        old.close()
        self.path = copied
        self.reopened()

    def copy_files(self) -> Path:
        """The data file as a killed process leaves it: with its log, without a checkpoint."""
        self.files += 1
        target = self.folder / f"{self.files}.db"
        for end in ("", "-wal"):
            source = Path(f"{self.path}{end}")
            if source.exists():
                shutil.copy(source, f"{target}{end}")
        return target

    def restart(self, data: st.DataObject) -> None:
        self.engine.close()
        self.reopened()

    def reopened(self) -> None:
        self.engine = self.open(self.path)
        self.model.started = self.mono
        self.model.remember_sessions()
        self.model.renew()

    def forget_session(self, data: st.DataObject) -> None:
        session = self.pick_session(data)
        self.engine.forget_session(session)
        self.model.forget_session(session)

    # -- rules: time ----------------------------------------------------------------------------------------------

    def time_passes(self, data: st.DataObject) -> None:
        seconds: float = data.draw(st.sampled_from([0.5, 1.0, 5.0, 5.0, 31.0, 200.0, 601.0, 3_700.0]))
        self.wall += int(seconds * 1000)
        self.mono += seconds
        self.model.wall, self.model.mono = self.wall, self.mono
        assert self.engine.promote(self.wall) == self.model.promote()
        self.engine.commit()

    def leases_run_out(self, data: st.DataObject) -> None:
        end = self.engine.next_lease_end()
        ends = [job.running.end for job in self.model.jobs.values() if job.running]
        assert (end is None) == (not ends)
        assert end is None or end <= min(ends), "a lease would run out without being looked at"
        assert self.engine.run_out(self.mono, self.wall) == self.model.run_out(self.mono)
        self.engine.commit()

    def renew_leases(self, data: st.DataObject) -> None:
        self.engine.renew_leases(self.mono)
        self.model.renew()

    def expire(self, data: st.DataObject) -> None:
        assert self.engine.expire(self.wall) == self.model.expire()
        assert not self.engine.late
        self.engine.commit()

    def sweep(self, data: st.DataObject) -> None:
        """A whole pass; only what is old may go, and nothing in the first ten minutes after a start."""
        for _ in range(20):
            self.engine.sweep(self.wall, self.mono)
            self.engine.commit()
            if not self.engine.sweeping:
                break
        gone = {id for id in self.model.jobs if self.state_of(id) is None}
        aliases = {row[0] for row in self.engine._store.rows("SELECT id FROM aliases")}
        assert not (gone or self.model.aliases.keys() - aliases) or self.mono >= self.model.started + FLOOR_MS / 1000
        for id in gone:
            assert self.model.is_old(id), "a young row was swept"
            self.model.sweep_away(id)
        self.swept |= gone
        for id in self.model.aliases.keys() - aliases:
            assert self.model.aliases.pop(id)[1] <= self.wall - FLOOR_MS, "a young alias was swept"

    # -- what holds after every step ------------------------------------------------------------------------------

    @invariant()
    def the_record_is_right(self) -> None:
        if not hasattr(self, "engine"):
            return
        record = self.engine.record()
        assert record["balanced"]
        assert record["overlaps"] == 0
        expected = self.model.record()
        for kind in ("queues", "workers"):
            found = {name: flatten(tally) for name, tally in record[kind].items()}
            assert {name: tally for name, tally in found.items() if tally} == {
                name: tally for name, tally in expected[kind].items() if tally
            }
        verified = self.engine.verify()
        assert verified["verified"], verified["differences"]

    @invariant()
    def no_job_is_lost(self) -> None:
        if not hasattr(self, "engine"):
            return
        rows = self.engine._store.rows("SELECT id, state FROM jobs")
        assert {id: STATES[state] for id, state in rows} == {id: job.state for id, job in self.model.jobs.items()}

    @invariant()
    def callers_are_told_the_states(self) -> None:
        if not hasattr(self, "engine"):
            return
        ids = [*self.ids, *self.model.aliases, b"\0" * 16]
        for line in self.engine.states(ids, self.wall):
            job = self.model.jobs.get(self.model.aliases.get(line.id, (line.id, 0))[0])
            if job is None:
                assert line.state in ("unknown", "expired")
            elif job.state == "done" and job.ended_at + self.retention.result_ttl <= self.wall:
                assert line.state == "expired"
            else:
                told = "dead" if job.state == "purged" else job.state
                assert (line.state, line.attempts, line.losses) == (told, job.attempts, job.losses)

    @invariant()
    def whoever_waits_hears_of_the_end(self) -> None:
        if not hasattr(self, "engine"):
            return
        over = {id for id, job in self.model.jobs.items() if job.state in ("done", "dead", "cancelled", "purged")}
        if self.watched is self.engine:
            told = self.engine.ended()
            assert told >= (over - self.over) & self.awaited.keys()
            assert told <= self.awaited.keys()
        self.awaited.update(dict.fromkeys(self.ids))
        self.engine.watch(self.awaited)
        self.watched, self.over = self.engine, over

    def the_books_match_a_fresh_start(self, data: st.DataObject) -> None:
        fresh = self.open(self.copy_files())
        try:
            assert books(self.engine) == books(fresh)
            due, fresh_due = self.engine.next_due(), fresh.next_due()
            assert fresh_due is None or (due is not None and due <= fresh_due)
            assert self.engine._core.place >= fresh._core.place
            assert self.engine._core.commit_no >= fresh._core.commit_no
        finally:
            fresh.close()

    def a_job_is_shown(self, data: st.DataObject) -> None:
        id = self.pick_job(data)
        shown, job = self.engine.show(id), self.model.jobs.get(id)
        assert (shown is None) == (job is None)
        if shown is None or job is None:
            return
        assert (shown["state"], shown["queue"]) == (job.state, job.add.queue)
        assert (shown["attempts"], shown["losses"]) == (job.attempts, job.losses)
        assert [(h["ended"], h["late"]) for h in shown["handouts"]] == [
            (h.how or "running", h.late) for h in job.handouts
        ]
        if job.state == "dead":
            assert bytes.fromhex(shown["body"]) == job.add.body
            if job.reason.startswith(("worker lost", "expired", "why")):
                assert shown["reason"] == job.reason


def _worker(session: bytes) -> str:
    return f"worker-{session[-1] % 5}"


def flatten(tally: dict[str, Any]) -> dict[str, int]:
    """A record's counts with slashes before the hand-outs' ends, zeros left out."""
    flat = {name: n for name, n in tally.items() if name != "handouts"}
    flat |= {f"/{how}": n for how, n in tally["handouts"].items()}
    return {name: n for name, n in flat.items() if n}


def lines(engine: Engine) -> tuple[set[bytes], dict[str, int]]:
    """Who waits in memory, and how many the index lists in each queue."""
    listed = engine._core.lines.listed
    return set(engine._core.lines.unlisted()), {engine._store.queue_names[id]: n for id, n in listed.items() if n}


def books(engine: Engine) -> dict[str, Any]:
    """What an engine keeps in memory and has to be able to derive from its file."""
    core = engine._core
    leases = {
        lease.id: tuple(
            getattr(lease, name) for name in lease.__slots__ if name not in ("end", "progress", "worker", "queue")
        )
        + (core.store.worker_names[lease.worker], core.store.queue_names[lease.queue])
        for lease in core.leases
    }
    return {
        "leases": leases,
        "record": engine.record(),
        "aliases": core.aliases,
        "id_like_keys": core.id_like_keys,
        "lines": lines(engine),
        "names": (core.store.queue_ids, core.store.worker_ids),
    }


# 150 examples in five parts, so that they can run at once, and none takes most of a test's time on a busy machine.
# Where it is fixed what is drawn, the name of the class decides it.
class Machine1(EngineMachine): ...


class Machine2(EngineMachine): ...


class Machine3(EngineMachine): ...


class Machine4(EngineMachine): ...


class Machine5(EngineMachine): ...


TestEngine1 = Machine1.TestCase
TestEngine2 = Machine2.TestCase
TestEngine3 = Machine3.TestCase
TestEngine4 = Machine4.TestCase
TestEngine5 = Machine5.TestCase
# To make a failing example smaller takes longer than a test may; the steps that are printed can be followed as is.
_PART = settings(
    max_examples=sized(30, 120),
    stateful_step_count=60,
    report_multiple_bugs=False,
    phases=[Phase.reuse, Phase.generate],
)
TestEngine1.settings = TestEngine2.settings = TestEngine3.settings = _PART
TestEngine4.settings = TestEngine5.settings = _PART
