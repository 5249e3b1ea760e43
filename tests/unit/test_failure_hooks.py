"""The hooks for dead jobs: called once, beside the settling, and whatever they do they hold up nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tenure import App, DeadJob, Failure
from tenure.broker import Settled
from tenure.codec import pack_failure
from tenure.message import Delivery, Raw, Settlement, Verb
from tenure.worker.counts import Counts
from tenure.worker.dead_hooks import MAX_WAITING, DeadHooks
from tenure.worker.patience import Patience
from tenure.worker.settler import Finished, Settler
from tenure.worker.table import Table
from tests.unit.fake_broker import FakeBroker
from tests.unit.worker_fakes import JOB, HandClock, ScriptedConsumer, delivery, message, receipt

FAILURE = Failure("ValueError", "no card", notes=("ask the bank",))
WAIT = 10.0


class Rig:
    def __init__(self) -> None:
        self.app = App("shop", broker=FakeBroker())
        self.hooks = DeadHooks(self.app)
        self.told: list[tuple[DeadJob, Failure]] = []

    def note(self, job: DeadJob, error: Failure) -> None:
        self.told.append((job, error))

    def charge(self, order: int, cents: int = 1) -> None: ...

    def put(self, item: Delivery, **fields: Any) -> None:
        self.hooks.put(item, dead(item, **fields))


def dead(item: Delivery, **fields: Any) -> Settlement:
    settlement = Settlement(item.receipt, "dead", reason="gave up", error=pack_failure(FAILURE))
    return settlement._replace(**fields)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.hooks.close(WAIT)


def test_a_hook_is_told_of_the_job_and_its_last_error(rig: Rig) -> None:
    rig.app.task(name="shop.charge", on_dead=rig.note)(rig.charge)
    item = delivery(3, 7, message=message(job=3, args=(42,), key="k", queue="billing"), attempt=4)
    rig.put(item._replace(losses=2))
    rig.hooks.close(WAIT)
    job = DeadJob(
        id=item.message.id, key="k", task="shop.charge", queue="billing", attempt=4, losses=2, fence=7,
        reason="gave up", args=(42,), kwargs={},
    )  # fmt: skip
    assert rig.told == [(job, FAILURE)]
    with pytest.raises(FrozenInstanceError):
        job.reason = "other"  # type: ignore[misc]


def test_jobs_that_cannot_be_read_are_told_of_too(rig: Rig) -> None:
    rig.app.on_dead(rig.note)
    rig.put(delivery(message=Raw(JOB, "default", "shop.charge", b"\xff", "damaged")), error=b"\xff")
    rig.put(delivery(1, task="shop.gone", args=(1,)))
    rig.app.task(name="shop.charge")(rig.charge)
    rig.put(delivery(2, args=(1, 2, 3)))
    rig.hooks.close(WAIT)
    assert [(job.key == job.id, job.args) for job, _ in rig.told] == [(True, ())] * 3
    assert rig.told[0] == (rig.told[0][0], Failure("", "gave up"))


def test_what_a_hook_raises_is_logged_and_stops_no_other(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def bad(job: DeadJob, error: Failure) -> None:
        calls.append(job.id)
        raise SystemExit("bad hook")

    rig.app.on_dead(bad)
    rig.app.on_dead(rig.note)
    for job in range(3):
        rig.put(delivery(job))
    rig.hooks.close(WAIT)
    assert len(calls) == len(rig.told) == 3
    assert caplog.text.count("SystemExit: bad hook") == 3


def test_without_hooks_there_is_no_thread(rig: Rig) -> None:
    before = threading.active_count()
    rig.put(delivery())
    rig.hooks.close(0.0)
    assert threading.active_count() == before


def test_a_hook_that_hangs_holds_up_nobody(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    begun, gate = threading.Event(), threading.Event()

    def hangs(job: DeadJob, error: Failure) -> None:
        begun.set()
        gate.wait(WAIT)
        rig.note(job, error)

    rig.app.on_dead(hangs)
    rig.put(delivery())
    assert begun.wait(WAIT)
    for job in range(1, MAX_WAITING + 3):
        rig.put(delivery(job))
    assert caplog.text.count("1000 jobs wait for their hooks already") == 2
    rig.hooks.close(0.0)
    assert "an on_dead hook still runs, and 1000 jobs wait" in caplog.text
    rig.put(delivery(5000))
    assert "the worker is leaving" in caplog.text
    gate.set()
    rig.hooks.close(WAIT)
    assert len(rig.told) == MAX_WAITING + 1


class Settling:
    """A settler to which settlements of some jobs are handed, with the hooks of an app behind it."""

    def __init__(self, rig: Rig, consumer: ScriptedConsumer, kinds: list[Verb]) -> None:
        self.table = Table.create(1, shared=False)
        self.settler = Settler(consumer, self.table, Patience(HandClock(), lambda: 1.0), rig.hooks.put)
        for job, kind in enumerate(kinds):
            item = delivery(job)
            place = self.table.hold(item.receipt, 1030.0, 30.0)
            assert place is not None
            self.table.settling(place, kind)
            settlement = dead(item)._replace(kind=kind)
            self.settler.put(Finished(place, settlement, "shop.charge", 1, 0.5, item))
        self.settler.stop()
        self.settler.run()
        rig.hooks.close(WAIT)


def test_only_an_answer_of_dead_calls_it(rig: Rig) -> None:
    rig.app.on_dead(rig.note)
    answers = [
        Settled("ok", "dead"), Settled("refused", "dead"), Settled("gone"), Settled("closed"), Settled("lost"),
        Settled("ok", "scheduled"), Settled("ok", "dead"),
    ]  # fmt: skip
    kinds: list[Verb] = ["dead", "dead", "dead", "dead", "release", "retry", "retry"]
    Settling(rig, ScriptedConsumer(settles=[answers]), kinds)
    assert [job.id for job, _ in rig.told] == [receipt(1, job)[:32].decode() for job in (0, 6)]


def test_lines_sent_again_call_it_once(rig: Rig) -> None:
    rig.app.on_dead(rig.note)
    consumer = ScriptedConsumer(settles=[ConnectionError("cut")] * 3)
    settling = Settling(rig, consumer, ["dead"])
    assert (len(consumer.sent), len(rig.told)) == (4, 1)
    assert settling.table.counts() == Counts(dead=1)


def test_the_settler_goes_on_when_no_thread_can_be_started(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    rig.app.on_dead(rig.note)
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "tenure.worker"):
        patched.setattr(threading.Thread, "start", refuse)
        settling = Settling(rig, ScriptedConsumer(), ["dead", "done"])
    assert settling.table.counts() == Counts(dead=1, done=1)
    assert "could not be called" in caplog.text
