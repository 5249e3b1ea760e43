"""`memory://`: the same hub and engine, in this process, in whatever thread asks."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pytest
from freezegun import freeze_time

from tenure import App, KeyConflict, MessageTooLarge, QueueClosed, QueueNotFound
from tenure.broker import Extend
from tenure.brokers import connect
from tenure.brokers.inprocess import MemoryConnection
from tenure.brokers.leasing import ServerConsumer
from tenure.brokers.memory import MemoryBroker, MemoryClock
from tenure.brokers.results import IDS_PER_LINE
from tenure.clock import boot
from tenure.errors import BrokerUnavailable, ConfigError
from tenure.message import Message, Settlement, When
from tests.unit.worker_fakes import HandClock, message

SESSION = "0" * 31 + "1"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def broker(clock: HandClock) -> Iterator[MemoryBroker]:
    broker = MemoryBroker(clock=clock, roll=lambda: 1.0)
    yield broker
    broker.close()


def job(number: int = 0, **fields: Any) -> Message:
    fields.setdefault("fingerprint", bytes(16))
    made = message(job=number, **fields)
    return made._replace(checksum=crc32(made.args))


def consumer_of(broker: MemoryBroker, session: str = SESSION, vt: float = 30.0) -> ServerConsumer:
    return broker.consumer(["default"], session=session, name="w", visibility_timeout=vt)


def totals(broker: MemoryBroker) -> dict[str, int]:
    found: dict[str, int] = broker.admin().record(True)["record"]["totals"]
    return {name: found[name] for name in ("added", "ready", "running", "scheduled", "done", "dead", "cancelled")}


def test_a_job_is_added_taken_and_settled(broker: MemoryBroker) -> None:
    (added,) = broker.add([job()])
    assert (added.id, added.created, added.error) == (job().id, True, None)
    consumer = consumer_of(broker)
    (delivery,) = consumer.take(5, 0.0)
    assert delivery.message == job(visibility_timeout=30.0)
    assert (delivery.receipt, delivery.attempt, delivery.losses) == (f"{job().id}:1".encode(), 1, 0)
    assert delivery.deadline == pytest.approx(1030.0, abs=0.1)
    (settled,) = consumer.settle([Settlement(delivery.receipt, "done", result=b"r", then=(job(1),))])
    assert (settled.answer, settled.detail, settled.added) == ("ok", "done", (True,))
    assert consumer.settle([Settlement(delivery.receipt, "done", result=b"r", then=(job(1),))])[0] == settled
    assert totals(broker) == {**dict.fromkeys(totals(broker), 0), "added": 2, "done": 1, "ready": 1}
    assert broker.counts().added == 1


def test_many_at_once_and_what_is_refused(broker: MemoryBroker) -> None:
    first, same, other, large = broker.add(
        [
            job(0, key="k"),
            job(1, key="k"),
            job(2, key="k", fingerprint=b"x" * 16),
            job(3, args=bytes(broker.capabilities.max_body)),
        ]
    )
    assert (first.created, same.created, same.id) == (True, False, first.id)
    assert isinstance(other.error, KeyConflict)
    assert isinstance(large.error, MessageTooLarge)
    assert broker.counts() == (1, 1, 0)


def test_a_parked_take_waits_by_the_clock_that_was_passed_in(broker: MemoryBroker, clock: HandClock) -> None:
    before = clock.now
    assert consumer_of(broker).take(1, 20.0) == []
    assert clock.now - before == pytest.approx(20.0, abs=0.1)


def test_a_lease_that_is_not_extended_runs_out_and_one_that_is_does_not(broker: MemoryBroker, clock: HandClock) -> None:
    broker.add([job(0), job(1)])
    consumer, keeper = consumer_of(broker), broker.keeper()
    kept, left = consumer.take(2, 0.0)
    clock.now += 20.0
    (extended,) = keeper.extend([Extend(kept.receipt)])
    assert extended.deadline == pytest.approx(clock.now + 30.0, abs=0.1)
    clock.now += 20.0
    (again,) = consumer.take(2, 0.0)
    assert (again.message.id, again.losses, again.fence) == (left.message.id, 1, 2)
    late, in_time = consumer.settle([Settlement(left.receipt, "done"), Settlement(kept.receipt, "done")])
    assert (late.answer, late.detail, in_time.answer) == ("refused", "returned", "ok")
    assert keeper.extend([Extend(left.receipt)])[0].deadline is None


def test_bye_gives_back_what_a_session_holds(broker: MemoryBroker) -> None:
    broker.add([job()])
    (held,) = consumer_of(broker).take(1, 0.0)
    assert broker.keeper().bye(SESSION, "lost", "SIGKILL", [held.receipt])[0].how == "lost"
    (again,) = consumer_of(broker, "0" * 31 + "2").take(1, 0.0)
    assert again.losses == 1


def test_a_due_time_comes_by_the_calendar_of_the_clock(broker: MemoryBroker, clock: HandClock) -> None:
    broker.add([job(0, run_at=When(60.0, relative=True)), job(1, run_at=When(clock.now + 30.0))])
    assert broker.server.next_due() == clock.now + 30.0
    consumer = consumer_of(broker)
    assert consumer.take(2, 0.0) == []
    clock.now += 30.0
    assert [delivery.message.id for delivery in consumer.take(2, 0.0)] == [job(1).id]
    clock.now += 30.0
    assert [delivery.message.id for delivery in consumer.take(2, 0.0)] == [job(0).id]


@pytest.mark.parametrize("wait", [0.4, 20.0])
def test_a_take_that_waits_while_the_clock_is_moved_is_given_nothing_whose_lease_is_over_when_it_reads(
    broker: MemoryBroker, clock: HandClock, wait: float
) -> None:
    broker.add([job(run_at=When(60.0, relative=True))])
    consumer = consumer_of(broker)

    def pass_a_minute() -> None:
        clock.on_wait = lambda: None
        clock.now += 61.0

    clock.on_wait = pass_a_minute
    assert consumer.take(1, wait) == []
    (held,) = consumer.take(1, 0.0)
    assert (held.fence, held.losses) == (1, 0)
    assert held.deadline == pytest.approx(clock.now + 30.0, abs=0.1)
    clock.now += 29.0
    assert consumer_of(broker, "0" * 31 + "2").take(1, 0.0) == []
    clock.now += 2.0
    assert [again.losses for again in consumer_of(broker, "0" * 31 + "3").take(1, 0.0)] == [1]


def test_a_connection_is_new_also_when_nobody_has_asked_for_long(broker: MemoryBroker, clock: HandClock) -> None:
    broker.add([job()])
    clock.now += 3600.0
    assert broker.results().states([job().id])[0].state == "ready"


def test_a_take_is_answered_once_though_its_connection_grows_old_meanwhile(
    broker: MemoryBroker, clock: HandClock
) -> None:
    consumer = consumer_of(broker)

    def hours_pass() -> None:
        clock.now += 7200.0

    clock.on_wait = hours_pass
    assert consumer.take(1, 20.0) == []
    clock.on_wait = lambda: None
    broker.add([job()])
    assert len(consumer.take(1, 20.0)) == 1


def test_lines_that_meet_the_end_of_their_connection_are_to_be_repeated(
    broker: MemoryBroker, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consumer_of(broker, vt=300.0)
    exchange = MemoryConnection.exchange

    def come_too_late(*given: Any) -> None:
        monkeypatch.undo()
        clock.now += 61.0  # after the line's own look at how old its connection is
        exchange(*given)

    assert consumer.take(1, 0.0) == []
    broker.add([job()])
    monkeypatch.setattr(MemoryConnection, "exchange", come_too_late)
    with pytest.raises(ConnectionError, match="the server has closed the connection: no complete line for 60 s"):
        consumer.take(1, 0.0)
    (held,) = consumer.take(1, 0.0)
    assert consumer.settle([Settlement(held.receipt, "release")])[0].answer == "ok"
    (held,) = consumer.take(1, 0.0)
    monkeypatch.setattr(MemoryConnection, "exchange", come_too_late)
    with pytest.raises(ConnectionError, match="the server has closed the connection"):
        consumer.settle([Settlement(held.receipt, "done")])
    assert consumer.settle([Settlement(held.receipt, "done")])[0].answer == "ok"
    assert totals(broker) == {**dict.fromkeys(totals(broker), 0), "added": 1, "done": 1}


def test_the_operator_sees_and_moves_jobs(broker: MemoryBroker) -> None:
    broker.add([job(0), job(1)])
    consumer, admin = consumer_of(broker), broker.admin()
    (delivery,) = consumer.take(1, 0.0)
    consumer.settle([Settlement(delivery.receipt, "dead", reason="broke")])
    assert [entry["id"] for entry in admin.dead(None, 10, None)] == [job(0).id]
    assert admin.requeue(job(0).id) == "ready"
    assert admin.cancel(job(1).id) == "cancelled"
    assert admin.job("0" * 32) is None
    assert admin.queues()[0]["ready"] == 1
    assert admin.record(verify=True)["differences"] == []


def test_a_wait_ends_with_the_first_job_or_with_its_time(broker: MemoryBroker, clock: HandClock) -> None:
    broker.add([job(number, run_at=When(5.0, relative=True) if number else None) for number in range(3)])
    ids = [job(number).id for number in range(3)]
    consumer, results = consumer_of(broker), broker.results()
    before = clock.now
    assert [state.state for state in results.wait(ids, 20.0)] == ["ready", "ready", "ready"]
    assert clock.now - before == pytest.approx(20.0, abs=0.1)
    deliveries = consumer.take(1, 0.0)
    consumer.settle([Settlement(deliveries[0].receipt, "done", result=b"packed")])
    assert [(state.state, state.result) for state in results.wait(ids, 20.0)] == [
        ("done", b"packed"),
        ("ready", None),
        ("ready", None),
    ]
    assert results.states(["0" * 32])[0].state == "unknown"


def test_a_wait_for_more_jobs_than_a_line_has_room_for(broker: MemoryBroker, clock: HandClock) -> None:
    numbers = range(IDS_PER_LINE + 20)
    broker.add([job(number) for number in numbers])
    ids = [job(number).id for number in numbers]
    before = clock.now
    assert {state.state for state in broker.results().wait(ids, 2.0)} == {"ready"}
    assert clock.now - before == pytest.approx(2.0, abs=0.3)
    broker.admin().cancel(ids[-1])
    states = broker.results().wait(ids, 60.0)
    assert [state.id for state in states] == ids
    assert states[-1].state == "cancelled"


def test_each_has_its_own_jobs_and_those_of_one_name_share_them() -> None:
    one, other, here, there = (connect(url) for url in ("memory://", "memory://", "memory://shop", "memory://shop"))
    one.add([job()])
    here.add([job()])
    assert [broker.admin().record()["totals"]["added"] for broker in (one, other, here, there)] == [1, 0, 1, 1]  # type: ignore[union-attr]
    here.close()
    assert there.admin().record()["totals"]["added"] == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("url", ["memory:///path", "memory://name?x=1"])
def test_a_url_with_more_than_a_name_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="memory://NAME"):
        connect(url)


def test_a_setting_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="add_timeout"):
        connect("memory://", add_timeuot=3)


def test_a_closed_broker_says_so() -> None:
    broker = MemoryBroker()
    consumer = consumer_of(broker)
    broker.close()
    broker.close()
    with pytest.raises(BrokerUnavailable, match="the broker is closed"):
        broker.add([job()])
    with pytest.raises(ConnectionError, match="closed"):
        consumer.take(1, 0.0)
    with pytest.raises(BrokerUnavailable, match="closed"):
        broker.results().wait([job().id], 1.0)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(work())
        except ConnectionError as error:
            came.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, came


def until_parked(broker: MemoryBroker) -> None:
    admin = broker.admin()
    while sum(queue["waiting"] for queue in admin.queues()) < 1:
        pass


def test_a_parked_take_is_woken_by_a_job_an_interrupt_and_the_end() -> None:
    broker = MemoryBroker()
    consumer = consumer_of(broker)
    thread, came = in_thread(lambda: consumer.take(1, 30.0))
    until_parked(broker)
    broker.add([job()])
    thread.join(10)
    ((delivery,),) = came
    assert delivery.message.id == job().id
    thread, came = in_thread(lambda: consumer.take(1, 30.0))
    until_parked(broker)
    consumer.interrupt()
    thread.join(10)
    assert isinstance(came[0], ConnectionError)
    thread, came = in_thread(lambda: consumer.take(1, 30.0))  # the repeat of the interrupted one
    until_parked(broker)
    broker.close()
    thread.join(10)
    assert isinstance(came[0], ConnectionError)


def test_waits_end_and_due_times_come_while_freezegun_stops_the_calendar() -> None:
    with freeze_time("2031-05-05 12:00") as frozen:
        broker = MemoryBroker()
        consumer = consumer_of(broker)
        assert consumer.take(1, 0.05) == []
        broker.add([job(run_at=When(3600.0, relative=True))])
        assert consumer.take(1, 0.05) == []
        frozen.tick(timedelta(hours=1))
        assert len(consumer.take(1, 0.05)) == 1
        assert MemoryClock().wall() == datetime(2031, 5, 5, 13, tzinfo=UTC).timestamp()
    broker.close()


def test_a_latest_start_is_told_while_freezegun_stops_the_calendar() -> None:
    with freeze_time("2031-05-05 12:00") as frozen:
        broker = MemoryBroker()
        consumer = consumer_of(broker)
        assert consumer.take(1, 0.0) == []
        frozen.tick(timedelta(hours=1))
        broker.add([job(expires=When(30.0, relative=True))])
        (taken,) = consumer.take(1, 0.0)
        assert taken.start_by == pytest.approx(boot() + 30.0, abs=5.0)
    broker.close()


def test_queues_are_stopped_and_purged(broker: MemoryBroker) -> None:
    admin = broker.admin()
    with pytest.raises(QueueNotFound, match="'default'"):
        admin.switch("pause", "default")
    broker.add([job()])
    assert (admin.switch("pause", "default"), admin.switch("close", "default")) == ("paused", "closed")
    refused = broker.add([job(1)])[0].error
    assert isinstance(refused, QueueClosed)
    assert "tenure open" in str(refused)
    assert consumer_of(broker).take(1, 0.0) == []
    assert (admin.switch("resume", "default"), admin.switch("open", "default")) == ("resumed", "open")
    assert admin.purge_queue("default") == 1
    assert admin.purge_queue("default") == 0
    with pytest.raises(QueueNotFound):
        admin.purge_queue("other")
    assert totals(broker) == {**dict.fromkeys(totals(broker), 0), "added": 1, "cancelled": 1}


def test_threads_add_and_take_at_the_same_time_and_the_counts_agree() -> None:
    broker = MemoryBroker()
    broker.add([job(9_999)])

    def produce(lane: int) -> None:
        for number in range(100):
            broker.add([job(lane * 100 + number)])

    def consume(lane: int) -> int:
        consumer = consumer_of(broker, f"{lane:032x}")
        count = 0
        while deliveries := consumer.take(7, 0.3):
            consumer.settle([Settlement(delivery.receipt, "done") for delivery in deliveries])
            count += len(deliveries)
        return count

    with ThreadPoolExecutor(8) as pool:
        produced = [pool.submit(produce, lane) for lane in range(4)]
        consumed = [pool.submit(consume, lane) for lane in range(1, 5)]
        for one in produced:
            one.result(30)
        assert sum(one.result(30) for one in consumed) == 401
    assert totals(broker)["done"] == 401
    broker.close()


def test_the_real_worker_runs_on_it() -> None:
    app = App("shop", broker="memory://")
    seen: list[int] = []
    all_there = threading.Event()

    @app.task(name="note")
    def note(number: int) -> None:
        seen.append(number)
        if len(seen) == 20:
            all_there.set()

    worker = app.worker(threads=3)
    thread = threading.Thread(target=worker.run, daemon=True)
    for number in range(10):
        note.delay(number)
    thread.start()
    for number in range(10, 20):
        note.delay(number)
    assert all_there.wait(20)
    worker.stop()
    thread.join(20)
    assert sorted(seen) == list(range(20))
    admin = app.broker.admin()
    assert admin is not None
    assert admin.record()["totals"]["done"] == 20
    app.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_with_no_jobs_and_the_parent_keeps_its_own() -> None:
    context = multiprocessing.get_context("fork")
    brokers = [MemoryBroker(), MemoryBroker("forked")]
    for broker in brokers:
        broker.add([job()])
    seen = context.SimpleQueue()

    def child() -> None:
        for broker in brokers:
            broker.add([job(1)])
            seen.put([broker.admin().record()["totals"]["added"], broker.counts().added])

    process = context.Process(target=child)
    process.start()
    process.join(20)
    assert [seen.get(), seen.get()] == [[1, 1], [1, 1]]
    assert [broker.admin().record()["totals"]["added"] for broker in brokers] == [1, 1]
