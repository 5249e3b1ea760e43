"""What subscribers are told, when, and that they cannot get in the way."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from tenure import AddError, App, BrokerUnavailable, ConfigError, Discard, Event, Retry, Snooze
from tenure.broker import Settled
from tenure.events import EventName, tell
from tenure.message import Settlement
from tenure.testing import inline_worker
from tenure.worker.settler import finished
from tenure.worker.telling import MAX_WAITING, Events, Teller
from tests.unit.fake_broker import FakeBroker
from tests.unit.worker_fakes import HandClock, delivery, receipt

ENDS: tuple[EventName, ...] = ("job.done", "job.retried", "job.released", "job.dead", "job.cancelled", "lease.lost")


@pytest.fixture
def told() -> list[Event]:
    return []


def make_app(told: list[Event], *names: EventName, broker: Any = None) -> App:
    app = App("shop", broker=broker)
    app.on(*names)(told.append)

    @app.task(name="ends", max_attempts=2)
    def ends(how: str) -> str:
        raised: dict[str, BaseException] = {
            "fail": ValueError("no"), "retry": Retry(delay=3, reason="not yet"), "snooze": Snooze(5, "later"),
            "discard": Discard("not wanted"),
        }  # fmt: skip
        if how in raised:
            raise raised[how]
        return how

    return app


# ------------------------------------------------------------------------------------------------------ adding


def test_a_job_is_told_of_once_it_is_added_and_only_when_it_is_new(told: list[Event]) -> None:
    broker = FakeBroker()
    app = make_app(told, "job.added", broker=broker)
    ends = app.tasks["ends"]
    job = ends.options(queue="slow", key="k").delay("well")
    assert [(one.name, one.job_id, one.job_key, one.task, one.queue) for one in told] == [
        ("job.added", job.id, "k", "ends", "slow")
    ]
    broker.existing["k"] = job.id
    ends.options(key="k").delay("well")
    broker.refuse["ends"] = AddError("refused", "")
    with pytest.raises(AddError):
        ends.delay("well")
    assert len(told) == 1


def test_of_many_each_is_told(told: list[Event]) -> None:
    app = make_app(told, "job.added", broker=FakeBroker())
    jobs = app.add_many([app.tasks["ends"].s(str(n)) for n in range(3)])
    assert [one.job_id for one in told] == [job.id for job in jobs if not isinstance(job, AddError)]


def test_an_unconfirmed_job_is_told_of_when_it_is_confirmed(told: list[Event]) -> None:
    broker = FakeBroker()
    app = make_app(told, "job.added", broker=broker)
    broker.unavailable = 1
    with pytest.raises(BrokerUnavailable) as caught:
        app.tasks["ends"].delay("well")
    assert told == []
    assert caught.value.resend().id == told[0].job_id


def test_a_subscriber_that_fails_does_not_fail_the_call(told: list[Event], caplog: pytest.LogCaptureFixture) -> None:
    app = App("shop", broker=FakeBroker())

    @app.on("job.added")
    def breaks(event: Event) -> None:
        raise KeyError("mine")

    app.on("job.added")(told.append)
    app.task(name="ends")(lambda: None).delay()
    assert len(told) == 1
    assert "the subscriber test_a_subscriber_that_fails_does_not_fail_the_call.<locals>.breaks failed at" in caplog.text


# ------------------------------------------------------------------------------------------------------ running


@pytest.mark.parametrize(
    ("how", "names", "reason", "delay"),
    [
        ("well", ["job.started", "job.done"], "", None),
        ("fail", ["job.started", "job.retried", "job.started", "job.dead"], "ValueError: no", None),
        ("retry", ["job.started", "job.retried", "job.started", "job.dead"], "not yet", 3.0),
        ("discard", ["job.started", "job.cancelled"], "not wanted", None),
    ],
)
def test_each_start_and_each_end_is_told(
    told: list[Event], how: str, names: list[str], reason: str, delay: float | None
) -> None:
    app = make_app(told, "job.started", *ENDS)
    with inline_worker(app) as worker:
        job = app.tasks["ends"].options(key="k").delay(how)
        worker.run_all(raise_errors=False)
    assert [one.name for one in told] == names
    assert {(one.job_id, one.job_key, one.task, one.queue) for one in told} == {(job.id, "k", "ends", "default")}
    assert [one.attempt for one in told] == [1, 1, 2, 2][: len(names)]
    assert reason in told[1].reason
    if delay is not None:
        assert told[1].delay == delay
    assert (told[0].seconds, told[0].delay) == (None, None)
    assert told[1].seconds is not None


def test_a_job_that_is_put_off_is_told_of_as_released(told: list[Event]) -> None:
    app = make_app(told, "job.started", *ENDS)
    with inline_worker(app) as worker:
        app.tasks["ends"].delay("snooze")
        with pytest.raises(AssertionError, match="comes to no end"):
            worker.run_all(raise_errors=False, until_idle=True, limit=2)
    assert [(one.name, one.delay, one.reason) for one in told[1::2]] == [("job.released", 5.0, "later")] * 2


def test_nothing_but_what_was_subscribed_to_is_told(told: list[Event]) -> None:
    app = make_app(told, "job.dead")
    with inline_worker(app) as worker:
        app.tasks["ends"].delay("well")
        app.tasks["ends"].delay("fail")
        worker.run_all(raise_errors=False)
    assert [one.name for one in told] == ["job.dead"]


def test_a_worker_says_when_it_begins_and_when_it_ends(told: list[Event]) -> None:
    app = make_app(told, "worker.started", "worker.stopped", "job.done")
    with inline_worker(app) as worker:
        assert told == []
        app.tasks["ends"].delay("well")
        worker.run_all()
    assert [(one.name, one.worker) for one in told] == [
        ("worker.started", "inline"), ("job.done", "inline"), ("worker.stopped", "inline"),
    ]  # fmt: skip


def test_a_worker_of_threads_tells_all_before_it_ends(told: list[Event]) -> None:
    app = make_app(told, "worker.started", "job.added", "job.started", "job.done", "worker.stopped")
    with inline_worker(app) as worker:
        jobs = [app.tasks["ends"].delay("well") for _ in range(20)]
        with worker.running(threads=2):
            assert [job.result(timeout=10) for job in jobs] == ["well"] * 20
    names = [one.name for one in told]
    assert (names[:20], names[20], names[-1]) == (["job.added"] * 20, "worker.started", "worker.stopped")
    for job in jobs:
        assert [one.name for one in told if one.job_id == job.id] == ["job.added", "job.started", "job.done"]


@pytest.mark.parametrize(
    ("answer", "name", "reason"),
    [
        (Settled("ok", "done"), "job.done", ""),
        (Settled("ok", "scheduled"), "job.retried", ""),
        (Settled("refused", "lost"), "lease.lost", "refused lost"),
        (Settled("gone"), "lease.lost", "gone"),
        (Settled("closed"), "lease.lost", "closed"),
    ],
)
def test_an_end_is_what_the_broker_says_it_is(told: list[Event], answer: Settled, name: str, reason: str) -> None:
    events = Events(make_app(told, *ENDS), "w1", lambda: 7.5, told.append)
    events.answered(finished(delivery(task="ends"), 0, Settlement(receipt(), "done"), 0.25), answer)
    (event,) = told
    assert (event.name, event.reason, event.at, event.worker, event.seconds) == (name, reason, 7.5, "w1", 0.25)
    assert event.job_id == event.job_key == receipt()[:32].decode()


# ------------------------------------------------------------------------------------------------------ the thread


def test_a_slow_subscriber_holds_nobody_up_and_loses_events_aloud(caplog: pytest.LogCaptureFixture) -> None:
    go, busy, told = threading.Event(), threading.Event(), list[Event]()
    app, clock = App("shop"), HandClock()

    @app.on("job.done")
    def slow(event: Event) -> None:
        busy.set()
        go.wait(10)
        told.append(event)

    teller = Teller(app, clock)
    event = Event("job.done", 0.0)
    teller.put(event)
    assert busy.wait(10)
    with caplog.at_level(logging.ERROR, "tenure.worker"):
        for _ in range(MAX_WAITING + 3):
            teller.put(event)
        assert caplog.text.count("subscribers are too slow") == 1
        clock.now += 60.0
        teller.put(event)
        assert f"{MAX_WAITING} events wait, 4 were not told so far" in caplog.text
    go.set()
    teller.close(10.0)
    assert len(told) == MAX_WAITING + 1


def test_one_that_never_returns_is_left_when_the_worker_leaves(caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()
    app = App("shop")

    @app.on("job.done")
    def stuck(event: Event) -> None:
        go.wait(10)

    teller = Teller(app, HandClock())
    for _ in range(3):
        teller.put(Event("job.done", 0.0))
    teller.close(0.0)
    go.set()
    assert "a subscriber still runs" in caplog.text


def test_the_thread_outlives_whatever_is_raised(told: list[Event], caplog: pytest.LogCaptureFixture) -> None:
    app = App("shop")

    @app.on("job.done")
    def exits(event: Event) -> None:
        if not told:
            told.append(event)
            raise SystemExit(3)
        told.append(event)

    teller = Teller(app, HandClock())
    for _ in range(2):
        teller.put(Event("job.done", 0.0))
    teller.close(10.0)
    assert len(told) == 2
    assert "SystemExit" in caplog.text


def test_without_subscribers_there_is_no_thread() -> None:
    teller = Teller(App("shop"), HandClock())
    teller.close(0.0)
    assert "tenure-events" not in [thread.name for thread in threading.enumerate()]


def test_an_interrupt_in_the_callers_thread_comes_through() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tell([interrupted], Event("job.added", 0.0))


# ------------------------------------------------------------------------------------------------------ registration


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("job.finished",), r"app\.on\('job\.finished'\) names no event\..*Events: job\.added, job\.started"),
        (("job_done",), r"Did you mean 'job\.done'"),
        ((), r"app\.on\(''\) names no event"),
    ],
)
def test_an_unknown_event_is_answered_with_those_that_there_are(names: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        App("shop").on(*names)


async def waits(event: Event) -> None: ...


@pytest.mark.parametrize("wrong", [5, lambda: None, waits])
def test_what_cannot_be_told_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.on goes on a plain function of an Event"):
        App("shop").on("job.done")(wrong)
