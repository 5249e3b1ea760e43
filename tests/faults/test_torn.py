"""A connection is cut behind every byte of a line, and behind every byte of its answer; lines come late, answers never.

The clients are those that producers and workers use, the sockets and the server are real.  After each cut every
account has to agree: what the client counted, the record, and what the cut verb was to change, exactly once.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import pytest

from tenure import Job
from tenure.broker import EndedAs, Extend, Settled
from tenure.brokers.server import ServerBroker, from_url
from tenure.faults import Direction, Proxy
from tenure.inspection import Inspection, inspect
from tenure.message import Delivery, Settlement
from tenure.worker.counts import NAMES, counter_of
from tests.stage.apps import elsewhere, jobs
from tests.stage.figures import recovered
from tests.stage.harness import SETTLED, Stage, wait_for
from tests.stage.scripts import VERBS, LosesAnswers, Tears
from tests.stage.sizes import sized

T = TypeVar("T")

WORKER = "bench"
VISIBILITY_TIMEOUT = 60.0
"""Seconds: far longer than a test, so that a job which was stranded is never given out again by this."""

READ_LIMIT = 0.3
"""Seconds after which silence is a broken connection; a second where nothing else is said."""


def repeat(ask: Callable[[], T], tries: int = 20) -> T:
    """Ask until it is answered, as the taker, the settler and the keeper do."""
    for _ in range(tries):
        try:
            return ask()
        except ConnectionError:
            time.sleep(0.002)
    return ask()


class Bench:
    """A producer, a worker's two lines and a keeper, all through the torn connection, and what they counted."""

    def __init__(self, broker: ServerBroker, record: Inspection) -> None:
        self._broker = broker
        self._record = record
        self.keeper = broker.keeper()
        self.counted: Counter[str] = Counter()
        self.slowest = 0.0
        self.before: Callable[[bytes], object] = lambda verb: None
        """Called with the verb before each line is written for the first time."""
        self.begin_session()

    def begin_session(self) -> None:
        """Be a worker process that has just started."""
        self.session = secrets.token_hex(16)
        self.consumer = self._broker.consumer(
            ["default"], session=self.session, name=WORKER, visibility_timeout=VISIBILITY_TIMEOUT
        )

    def add(self) -> Job[int]:
        """Add a job; it is made by this call, however often its line was sent."""
        self.before(b"add")
        job = jobs.work.delay(0)
        assert job.created
        return job

    def take(self, *ready: Job[int], fence: int = 1) -> list[Delivery]:
        """Take all jobs that are ready, at their hand-out number `fence`: an earlier one that was lost would show."""
        self.before(b"take")
        begun = time.monotonic()
        deliveries = repeat(lambda: self.consumer.take(10, 0.5))
        self.slowest = max(self.slowest, time.monotonic() - begun)
        assert [one.receipt for one in deliveries] == [b"%b:%d" % (job.id.encode(), fence) for job in ready]
        return deliveries

    def settle(self, *settlements: Settlement) -> list[Settled]:
        """Settle in one write, and count the answers as a worker does."""
        self.before(settlements[0].kind.encode())
        answers = repeat(lambda: self.consumer.settle(settlements))
        self.counted.update(NAMES[counter_of(answer)] for answer in answers)
        return answers

    def done(self, *deliveries: Delivery) -> None:
        """Settle as done."""
        settlements = [Settlement(one.receipt, "done", result=b"\xc0") for one in deliveries]
        assert self.settle(*settlements) == [Settled("ok", "done")] * len(deliveries)

    def check(self) -> dict[str, int]:
        """Hold every account against the others; returns the record's hand-outs."""
        answer = self._record.record(verify=True)
        assert answer["verified"], answer["differences"]
        record = answer["record"]
        assert (record["balanced"], record["overlaps"]) == (True, 0)
        totals = record["totals"]
        assert (totals["added"], totals["duplicates"], 0) == jobs.app.counts
        assert [totals[state] for state in ("scheduled", "ready", "running", "dead", "refused")] == [0] * 5
        assert totals["done"] == totals["added"]
        handouts: dict[str, int] = totals["handouts"]
        assert {name: handouts[name] for name in SETTLED} == {name: self.counted[name] for name in SETTLED}
        assert sum(self.counted.values()) == sum(handouts[name] for name in SETTLED)
        assert sum(handouts.values()) == totals["handed_out"]
        return handouts


def one(bench: Bench) -> None:
    """Add one job, take it and have it done."""
    bench.done(*bench.take(bench.add()))


def three(bench: Bench) -> None:
    """Add three jobs in one write, take them with one line, and have them done in one write."""
    added = jobs.app.add_many([jobs.work.s(number) for number in range(3)])
    together = [job for job in added if isinstance(job, Job) and job.created]
    bench.done(*bench.take(*together))


def another(bench: Bench) -> None:
    """Begin as another worker process, whose connections are not there yet, and do one job."""
    bench.consumer.close()
    bench.begin_session()
    one(bench)


def retry(bench: Bench) -> None:
    """Try a job again at once: one attempt more, and the job is ready."""
    job = bench.add()
    (delivery,) = bench.take(job)
    settlement = Settlement(delivery.receipt, "retry", reason="no luck", error=b"\x80")
    assert bench.settle(settlement) == [Settled("ok", "scheduled")]
    (again,) = bench.take(job, fence=2)
    assert (again.attempt, again.losses) == (2, 0)
    bench.done(again)


def extend(bench: Bench) -> None:
    """Extend the lease of a job: it stays that hand-out, with a later deadline."""
    (delivery,) = bench.take(bench.add())
    bench.before(b"extend")
    (answer,) = repeat(lambda: bench.keeper.extend([Extend(delivery.receipt, b"\x01")]))
    assert answer.deadline is not None
    assert answer.deadline > delivery.deadline
    bench.done(delivery)


def bye(bench: Bench) -> None:
    """Give back the job of a process that died: one loss, and the job is ready at once."""
    job = bench.add()
    (delivery,) = bench.take(job)
    bench.before(b"bye")
    ended = repeat(lambda: bench.keeper.bye(bench.session, "lost", "SIGKILL", [delivery.receipt]))
    assert ended == [EndedAs("lost", False)]
    bench.consumer.close()
    bench.begin_session()
    (again,) = bench.take(job, fence=2)
    assert (again.attempt, again.losses) == (1, 1)
    bench.done(again)


def untake(bench: Bench) -> None:
    """Give back a job that a process was given and has not read: no loss, and the job is ready at once."""
    job = bench.add()
    bench.take(job)
    bench.before(b"untake")
    repeat(lambda: bench.keeper.untake(bench.session, bench.consumer.number - 1, "did not listen", []))
    (again,) = bench.take(job, fence=2)
    assert (again.attempt, again.losses) == (1, 0)
    bench.done(again)


@dataclass(frozen=True)
class Act:
    """What is done over and over with a line torn, how its hand-outs end, and the bytes from one place to the next."""

    verb: bytes
    run: Callable[[Bench], None]
    ends: dict[str, int]
    step: int = 1


SOME = sized(9, 1)
ACTS = {
    "add": Act(b"add", one, {"done": 1}),
    "take": Act(b"take", one, {"done": 1}),
    "done": Act(b"done", one, {"done": 1}),
    "retry": Act(b"retry", retry, {"done": 1, "retried": 1}),
    "extend": Act(b"extend", extend, {"done": 1}),
    "bye": Act(b"bye", bye, {"done": 1, "lost": 1}),
    "untake": Act(b"untake", untake, {"done": 1, "left": 1}),
    "hello": Act(b"hello", another, {"done": 1}, SOME),
    "three adds": Act(b"add", three, {"done": 3}, SOME),
    "take of three": Act(b"take", three, {"done": 3}, SOME),
    "three dones": Act(b"done", three, {"done": 3}, SOME),
}


@pytest.fixture
def tears() -> Tears:
    return Tears()


@pytest.fixture
def proxy(stage: Stage, tears: Tears) -> Iterator[Proxy]:
    with Proxy(stage.url, script=tears) as proxy:
        yield proxy


@pytest.fixture
def bench(stage: Stage, proxy: Proxy) -> Iterator[Bench]:
    stage.use(jobs.app, proxy.url)
    broker = from_url(proxy.url, read_limit=READ_LIMIT)
    with inspect(stage.url) as inspection:
        bench = Bench(broker, inspection)
        try:
            yield bench
        finally:
            bench.consumer.close()
            bench.keeper.close()
            broker.close()


@pytest.mark.parametrize("name", ACTS)
def test_torn_at_every_byte(stage: Stage, bench: Bench, tears: Tears, name: str) -> None:
    act, rounds, places = ACTS[name], 0, []
    for direction in Direction:
        for after in count(0, act.step):
            tears.arm(act.verb, direction, after)
            act.run(bench)
            rounds += 1
            handouts = bench.check()
            assert handouts == dict.fromkeys(handouts, 0) | {how: rounds * each for how, each in act.ends.items()}
            if tears.disarm():  # there is no such byte any more: the line, or its answer, is shorter
                break
        places.append(after)
    print(f"{name}: {places[0]} bytes of what was asked, {places[1]} of the answer")
    assert min(places) > len(b"ok\n")
    recovered("the answer to a take is given again", bench.slowest, 0.5)
    stage.check(jobs.app.counts)


def test_a_line_arrives_after_its_repeat_was_answered(stage: Stage, bench: Bench, proxy: Proxy) -> None:
    for name in ("add", "take", "done", "retry", "extend", "bye"):
        act = ACTS[name]
        act.run(bench)  # so that its connection is there, and the line is the next that is sent

        def hold_back(about: bytes, verb: bytes = act.verb) -> None:
            if about == verb:
                bench.before = lambda verb: None
                proxy.late_request()

        bench.before = hold_back
        begun = time.monotonic()
        act.run(bench)
        assert time.monotonic() - begun > READ_LIMIT, f"{name} was not held back"
        bench.check()
        time.sleep(0.1)  # by now the old line has arrived
        bench.check()
    stage.check(jobs.app.counts)


def test_answers_are_lost(stage: Stage) -> None:
    loses = LosesAnswers(3)
    with Proxy(stage.url, script=loses) as proxy:
        stage.use(jobs.app, proxy.url)
        stage.start_worker("w", "--processes", "1", "--threads", "2", "--visibility-timeout", "1s", broker=proxy.url)
        stage.use(elsewhere.app)
        elsewhere.something_else.delay()  # which this worker does not know
        added = [jobs.work.delay(number) for number in range(20)]
        added += [jobs.work.delay(number, 1.0) for number in range(3)]
        failing = [jobs.broken.delay("no") for _ in range(4)]
        assert all(job.created for job in added)
        stage.wait_done(len(added))
        wait_for(lambda: stage.totals()["dead"] == len(failing), 5, "the raising jobs are dead")
        wait_for(lambda: loses.lost[b"release"] >= 2, 5, "a release was answered")
        produced = jobs.app.counts
        record = stage.check(produced._replace(added=produced.added + 1))
    assert [verb for verb in VERBS if not loses.lost[verb]] == []
    print({verb.decode(): times for verb, times in loses.lost.items()})
    assert record["totals"]["handouts"]["retried"] == len(failing)
    assert len(stage.executions()) == len(added) + 2 * len(failing)
