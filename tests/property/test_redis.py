"""Redis against the model of the rules: every verb, lines again at any time, time passing, starts of the server.

A key is held within its queue there, so each task has one queue here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tenure.broker import EndedAs, Extend, Settled
from tenure.brokers.redis.consumer import RedisConsumer
from tenure.brokers.redis.layout import QUEUES as QUEUE_NAMES
from tenure.clock import own_deadline
from tenure.engine.adding import Closed, Conflict, Created, Exists
from tenure.engine.core import Retention
from tenure.engine.settling import Held, SettleAnswer
from tenure.errors import JobNotFound, KeyConflict, QueueClosed, QueueNotFound
from tenure.message import Delivery, Message, Settlement, When
from tenure.wire.commands import Add, Bye, ExtendItem, Job, Settle, Take, Untake
from tests.property.model import Model
from tests.stage.redis_lab import NOW, RedisLab, message, session_of, standing_clock
from tests.stage.redis_servers import RedisServer
from tests.stage.sizes import sized

QUEUES = {"t": "q", "u": "a {b} %7D:c"}
"""Task -> its queue."""
VERBS = ["done", "done", "retry", "retry", "release", "dead", "cancel"]
# All times are whole eighths of a second, which floats hold exactly.
MOMENTS = st.sampled_from([None, None, 0.125, 2.0, 60.0])
ADDS = st.tuples(
    st.sampled_from([None, None, "a", "b", "like an id"]),
    st.sampled_from(list(QUEUES)),
    st.sampled_from([b"f" * 16, b"f" * 16, b"g" * 16]),
    st.sampled_from([5, 5, 0, 9]),
    MOMENTS,
    MOMENTS,
    st.sampled_from([None, None, 1.0]),
    st.sampled_from([20, 1, 2]),
    st.sampled_from([5, 1, 2]),
    st.sampled_from([1, 1, 200]),
)


class RedisMachine(RuleBasedStateMachine):
    """Drives a Redis server and the model with the same lines and holds them against each other after each."""

    server: ClassVar[RedisServer]

    @initialize(key_window=st.sampled_from([0.0, 86_400.0]), result_ttl=st.sampled_from([0.0, 3_600.0]))
    def start(self, key_window: float, result_ttl: float) -> None:
        self.server.command("FLUSHALL")
        self.server.command("SADD", QUEUE_NAMES, *QUEUES.values())  # as a worker's first take does
        self.lab = RedisLab(self.server, key_window=key_window, result_ttl=result_ttl)
        retention = Retention(round(result_ttl * 1000), round(key_window * 1000))
        self.model = Model(retention, NOW, 0.0)
        self.lines: dict[int, RedisConsumer] = {}
        self.messages: list[Message] = []
        self.held: list[tuple[int, Delivery]] = []
        """Every delivery there ever was, and whose it is."""
        self.settled: list[tuple[int, Settlement]] = []
        self.sessions = 0
        for _ in range(3):
            self.new_worker()

    def new_worker(self) -> None:
        self.sessions += 1
        self.lines[self.sessions] = self.lab.consumer(
            self.sessions, list(QUEUES.values()), 30.0, name=f"w{self.sessions % 2}"
        )

    def teardown(self) -> None:
        if hasattr(self, "lab"):
            try:
                self.the_jobs_are_the_models()
            finally:
                self.lab.close()

    def the_jobs_are_the_models(self) -> None:
        """At the end: a recount agrees with the record, and each job is as it has to be."""
        self.the_record_is_the_models()
        self.lab.verified()
        admin = self.lab.broker.admin()
        for id, job in self.model.jobs.items():
            shown = admin.job(id.hex())
            if shown is None:
                assert self.model.is_old(id)
                continue
            assert (shown["state"], shown["attempts"], shown["losses"]) == (job.state, job.attempts, job.losses)
            assert [one["ended"] for one in shown["handouts"]] == [one.how or "running" for one in job.handouts]
            assert [one["late"] for one in shown["handouts"]] == [one.late for one in job.handouts]

    # -- adds -----------------------------------------------------------------------------------------------------

    @rule(what=ADDS)
    def add(self, what: tuple[Any, ...]) -> None:
        key, task, fingerprint, priority, run_at, expires, vt, max_attempts, max_losses, size = what
        if key == "like an id":
            key = self.messages[-1].id if self.messages else None
        made = message(
            len(self.messages) + 1, key=key, task=task, queue=QUEUES[task], fingerprint=fingerprint, priority=priority,
            run_at=after(run_at), expires=after(expires), visibility_timeout=vt,
            max_attempts=max_attempts, max_losses=max_losses, args=b"a" * size,
        )  # fmt: skip
        self.messages.append(made)
        self.add_it(made)

    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        if self.messages:
            self.add_it(data.draw(st.sampled_from(self.messages)))

    def add_it(self, made: Message) -> None:
        expected = self.model.add(as_line(made))
        (answer,) = self.lab.add(made)
        match expected:
            case Created():
                assert answer == (made.id, True, None)
            case Exists(_, first):
                assert answer == (first.hex(), False, None)
            case Conflict(_, first, key):
                assert isinstance(answer.error, KeyConflict)
                assert (answer.error.first_id, answer.error.key) == (first.hex(), key)
            case Closed():
                assert isinstance(answer.error, QueueClosed)

    # -- takes ----------------------------------------------------------------------------------------------------

    @rule(worker=st.integers(0, 9), limit=st.integers(1, 4))
    def take(self, worker: int, limit: int) -> None:
        session = sorted(self.lines)[worker % len(self.lines)]
        line = self.lines[session]
        self.time_is_seen()
        before = {id for id, job in self.model.jobs.items() if self.model.is_late(job)}
        assert not before
        number = line.number
        taken = line.take(limit, 0)
        for queue in QUEUES.values():
            asked = Take(number, limit, 0, 30_000, (queue,))
            mine = [job for job in taken if job.message.queue == queue]
            waiting = [job.add.id for job in self.model.line(queue)]
            given = [bytes.fromhex(job.message.id) for job in mine]
            assert given == waiting[: len(given)], "not the head of the line"
            for job in mine:
                self.model.hand_out(session_of(session).encode(), name_of(session), asked, as_job(job))
        self.held += [(session, job) for job in taken]
        left = any(self.model.line(queue) for queue in QUEUES.values())
        assert taken or not left, "jobs were left though there was room"
        for job in taken:
            now = self.lab.clock.boot()
            assert job.deadline == own_deadline(now, job.visibility_timeout)
        self.follow_the_sweep()

    @rule(worker=st.integers(0, 9))
    def take_again(self, worker: int) -> None:
        """The answer of a take was lost: the same number again brings what of it still runs, and nothing new."""
        session = sorted(self.lines)[worker % len(self.lines)]
        line = self.lines[session]
        if line.number == 1:
            return
        self.time_is_seen()
        line.number -= 1
        numbers = self.model.held_by(session_of(session).encode(), line.number)
        taken = line.take(4, 0)
        if numbers:  # a number under which nothing was handed out may grant as if it were new
            assert {(bytes.fromhex(job.message.id), job.fence) for job in taken} >= set(numbers)
        for job in taken:
            key = bytes.fromhex(job.message.id), job.fence
            if key not in numbers:
                asked = Take(line.number - 1, 4, 0, 30_000, (job.message.queue,))
                self.model.hand_out(session_of(session).encode(), name_of(session), asked, as_job(job))
                self.held.append((session, job))
            else:
                left = round((numbers[key].end - self.model.mono) * 1000)
                assert job.deadline == own_deadline(self.lab.clock.boot(), left / 1000)
        self.follow_the_sweep()

    # -- settling -------------------------------------------------------------------------------------------------

    @rule(data=st.data(), verb=st.sampled_from(VERBS), delay=st.sampled_from([0.0, 0.0, 2.0]), ran=st.booleans())
    def settle(self, data: st.DataObject, verb: Any, delay: float, ran: bool) -> None:
        if self.held:
            recent = st.sampled_from(self.held[-5:])
            session, job = data.draw(recent | st.sampled_from(self.held))
            one = Settlement(
                job.receipt, verb, delay, "why", b"e" if verb in ("retry", "dead") else b"",
                self.result(job) if verb == "done" else None, ran=ran or verb != "dead",
            )  # fmt: skip
            self.settled.append((session, one))
            self.settle_it(session, one)

    def result(self, job: Delivery) -> bytes | None:
        """None, a short one or a long one."""
        return (None, b"r", b"r" * 100)[job.fence % 3]

    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        if self.settled:
            self.settle_it(*data.draw(st.sampled_from(self.settled)))

    def settle_it(self, session: int, one: Settlement) -> None:
        expected = self.model.settle(session_of(session).encode(), as_settle(one))
        line = self.lines.get(session)
        if line is None:  # the process has gone; its line may come all the same
            line = self.lab.consumer(session, ["q"])
        assert line.settle([one]) == [as_settled(expected)]

    @rule(data=st.data(), owner=st.booleans())
    def settle_for_a_child(self, data: st.DataObject, owner: bool) -> None:
        if self.held:
            session, job = data.draw(st.sampled_from(self.held[-5:]))
            session = session if owner else session % self.sessions + 1
            one = Settlement(job.receipt, "retry", 0.0, "stopped", b"e")
            expected = self.model.settle(b"keeper", as_settle(one, session_of(session).encode()))
            assert self.lab.keeper.settle(session_of(session), [one]) == [as_settled(expected)]

    @rule(data=st.data(), progress=st.sampled_from([None, b"half"]))
    def extend(self, data: st.DataObject, progress: bytes | None) -> None:
        if self.held:
            _, job = data.draw(st.sampled_from(self.held[-5:]))
            item = ExtendItem(bytes.fromhex(job.message.id), job.fence, progress)
            (expected,) = self.model.extend(b"keeper", (item,), self.model.mono) or (Held(None),)
            (answer,) = self.lab.keeper.extend([Extend(job.receipt, progress)])
            hold = expected.hold
            now = self.lab.clock.boot()
            assert answer.deadline == (None if hold is None else own_deadline(now, hold / 1000))
            assert answer.cancel == (None, "ask", "terminate")[expected.cancel]

    @rule(worker=st.integers(0, 9), end=st.sampled_from(["left", "lost"]))
    def bye(self, worker: int, end: Any) -> None:
        session = sorted(self.lines)[worker % len(self.lines)]
        receipts = [job.receipt for whose, job in self.held if whose == session][-3:]
        pairs = tuple((bytes.fromhex(one[:32].decode()), int(one[33:])) for one in receipts)
        expected = self.model.bye(Bye(session_of(session).encode(), end, "gone", pairs))
        answers = self.lab.keeper.bye(session_of(session), end, "gone", receipts)
        assert answers == [EndedAs(one.how or "unknown", one.late) for one in expected]
        del self.lines[session]
        self.new_worker()

    @rule(worker=st.integers(0, 9), keep=st.booleans())
    def untake(self, worker: int, keep: bool) -> None:
        session = sorted(self.lines)[worker % len(self.lines)]
        number = self.lines[session].number - 1
        running = self.model.held_by(session_of(session).encode(), number)
        held = [b"%b:%d" % (id.hex().encode(), n) for id, n in list(running)[: int(keep)]]
        pairs = tuple((bytes.fromhex(one[:32].decode()), int(one[33:])) for one in held)
        self.model.untake(Untake(session_of(session).encode(), number, "nobody reads", pairs))
        self.lab.keeper.untake(session_of(session), number, "nobody reads", held)

    # -- operators ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), verb=st.sampled_from(["cancel", "terminate", "requeue", "requeue", "purge"]))
    def operate(self, data: st.DataObject, verb: str) -> None:
        if not self.messages:
            return
        id = data.draw(st.sampled_from(self.messages)).id
        admin, raw = self.lab.broker.admin(), bytes.fromhex(id)
        expected: str | bytes | None
        answer: str | bytes | None
        try:
            if verb in ("cancel", "terminate"):
                expected = self.model.cancel_job(raw, verb == "terminate")
                answer = admin.cancel(id, verb == "terminate")
            elif verb == "requeue":
                expected = self.model.requeue(raw)
                answer = admin.requeue(id)
            else:
                expected = self.model.purge(raw)
                answer = admin.purge(id)
        except JobNotFound:
            answer = None
        except KeyConflict as error:
            answer = bytes.fromhex(error.first_id)
        assert answer == expected

    @rule(
        verb=st.sampled_from(["pause", "resume", "resume", "close", "open", "open"]), task=st.sampled_from(["t", "u"])
    )
    def switch(self, verb: Any, task: str) -> None:
        expected = self.model.switch(verb, QUEUES[task])
        answer: str | None
        try:
            answer = self.lab.broker.admin().switch(verb, QUEUES[task])
        except QueueNotFound:
            answer = None
        assert answer == expected

    @rule(task=st.sampled_from(["t", "u"]))
    def purge_queue(self, task: str) -> None:
        expected = self.model.purge_queue(QUEUES[task], None)
        answer: tuple[int, None] | None
        try:
            answer = self.lab.broker.admin().purge_queue(QUEUES[task]), None
        except QueueNotFound:
            answer = None
        assert answer == expected

    # -- time -----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.125, 1.0, 5.0, 40.0, 700.0, 4_000.0]))
    def pass_time(self, seconds: float) -> None:
        self.lab.pass_time(seconds)
        self.model.wall = self.lab.now
        self.model.mono += seconds

    @rule()
    def server_starts_again(self) -> None:
        """Its data are there and its scripts are not; the workers connect again."""
        for line in self.lines.values():
            line.close()
        numbers = {session: line.number for session, line in self.lines.items()}
        self.lines = {}
        self.server.command("SCRIPT", "FLUSH")
        for session, number in numbers.items():
            self.lines[session] = self.lab.consumer(session, list(QUEUES.values()), 30.0, name=name_of(session))
            self.lines[session].number = number + 1

    def time_is_seen(self) -> None:
        """What every timed script begins with, in the model too."""
        self.model.promote()
        self.model.run_out(self.model.mono)
        self.model.expire()

    def follow_the_sweep(self) -> None:
        """What is old may be gone now."""
        admin = self.lab.broker.admin()
        for id in [id for id in self.model.jobs if self.model.is_old(id)]:
            if admin.job(id.hex()) is None:
                self.model.sweep_away(id)

    @invariant()
    def the_record_is_the_models(self) -> None:
        if not hasattr(self, "lab"):
            return
        self.time_is_seen()
        record = self.lab.broker.admin().record()
        expected = self.model.record()
        for kind in ("queues", "workers"):
            shown = {name: flat(tally) for name, tally in record[kind].items()}
            mine = {name: tally for name, tally in expected[kind].items() if tally}
            assert {name: tally for name, tally in shown.items() if tally} == mine


def after(seconds: float | None) -> When | None:
    return None if seconds is None else When(seconds, relative=True)


def name_of(session: int) -> str:
    return f"w{session % 2}"


def flat(tally: dict[str, Any]) -> dict[str, int]:
    """Counts that are not 0; hand-outs' ends with a slash before them."""
    both = {**tally, **{f"/{how}": n for how, n in tally["handouts"].items()}}
    return {name: n for name, n in both.items() if n and name != "handouts"}


def as_line(made: Message) -> Add:
    def moment(when: When | None) -> tuple[int, bool] | None:
        return None if when is None else (round(when.seconds * 1000), when.relative)

    vt = None if made.visibility_timeout is None else round(made.visibility_timeout * 1000)
    return Add(
        bytes.fromhex(made.id), made.queue, made.task, made.fingerprint, made.args, made.key, made.priority,
        moment(made.run_at), moment(made.expires), vt, made.max_attempts, made.max_losses,
    )  # fmt: skip


def as_job(taken: Delivery) -> Job:
    made = taken.message
    assert isinstance(made, Message)
    vt = round(taken.visibility_timeout * 1000)
    return Job(
        bytes.fromhex(made.id), taken.fence, vt, vt, taken.attempt, taken.losses, made.queue, made.task,
        made.fingerprint, made.args, made.key, made.priority, None, None, made.max_attempts, made.max_losses,
    )  # fmt: skip


def as_settle(one: Settlement, session: bytes | None = None) -> Settle:
    id, number = bytes.fromhex(one.receipt[:32].decode()), int(one.receipt[33:])
    delay = round(one.delay * 1000) if one.kind in ("retry", "release") else 0
    return Settle(one.kind, id, number, delay, one.reason, one.error, session=session, ran=one.ran)


def as_settled(answer: SettleAnswer) -> Settled:
    return Settled(answer.word, answer.detail)


@pytest.mark.parametrize("part", range(3))
def test_redis_keeps_the_rules_of_the_model(tmp_path: Path, part: int) -> None:
    """Three parts, so that they can run at once, and none takes most of a test's time on a busy machine."""
    with RedisServer(tmp_path, durable=False) as server, standing_clock():
        # Where it is fixed what is drawn, the name of the class decides it.
        machine = type(f"Machine{part}", (RedisMachine,), {"server": server})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=sized(15, 400),
                stateful_step_count=50,
                report_multiple_bugs=False,
                phases=[Phase.reuse, Phase.generate],
            ),
        )
