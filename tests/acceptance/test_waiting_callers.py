"""Callers that wait for jobs over one connection: many at once, exact timeouts, every way in which it breaks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure.broker import JobState
from tenure.brokers import results
from tenure.brokers.pipe import Pipe
from tenure.brokers.server import ServerBroker, from_url
from tenure.engine.core import Retention
from tenure.errors import BrokerUnavailable, ServerError
from tenure.ids import new_id
from tenure.message import Message, Settlement
from tests.stage.hub_server import HubServer
from tests.unit.scripted import Peer, Scripted, swallow

SESSION = "1" * 32


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def broker(server: HubServer) -> Iterator[ServerBroker]:
    broker = client(server.url)
    yield broker
    broker.close()


def client(url: str, **settings: Any) -> ServerBroker:
    return from_url(url, **{"read_limit": 0.5, "roll": lambda: 0.0, **settings})


def add(broker: ServerBroker, count: int) -> list[str]:
    """Add jobs and return their ids."""
    messages = [Message(new_id(), "t", b"", 0, b"f" * 16) for _ in range(count)]
    return [added.id for added in broker.add(messages)]


class Hand:
    """A worker that holds all jobs and settles them when it is told."""

    def __init__(self, broker: ServerBroker) -> None:
        self._consumer = broker.consumer(["default"], session=SESSION, name="w", visibility_timeout=30.0)
        self._receipts: dict[str, bytes] = {}

    def take(self, count: int) -> None:
        while len(self._receipts) < count:
            for one in self._consumer.take(1000, 0.5):
                self._receipts[one.message.id] = one.receipt

    def done(self, *ids: str, result: bytes = b"value") -> None:
        self._consumer.settle([Settlement(self._receipts[id], "done", result=result) for id in ids])

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def hand(broker: ServerBroker) -> Iterator[Hand]:
    hand = Hand(broker)
    yield hand
    hand.close()


def start(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run work in a thread; what it returns, or raises, is put into the list."""
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(work())
        except BaseException as error:  # noqa: BLE001
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def parked(server: HubServer, *ids: str) -> bool:
    return {bytes.fromhex(id) for id in ids} <= set(server.hub._parking.jobs)


# -- going well ---------------------------------------------------------------------------------------------------


def test_the_end_of_a_job_ends_the_wait(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    first, second = add(broker, 2)
    hand.take(2)
    thread, out = start(lambda: broker.results().wait([first, second], 20))
    until(lambda: parked(server, first, second))
    hand.done(second)
    thread.join()
    assert out == [
        [JobState(first, "running", queue="default"), JobState(second, "done", 1, result=b"value", queue="default")]
    ]


def test_what_has_ended_is_there_at_once_in_the_order_of_the_ids(broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 3)
    hand.take(3)
    hand.done(*ids)
    asked = [ids[2], ids[0], ids[2], new_id()]
    for found in (broker.results().wait(asked, 5), broker.results().states(asked), broker.results().wait(asked, 0)):
        assert [(state.id, state.state) for state in found] == [
            (ids[2], "done"),
            (ids[0], "done"),
            (ids[2], "done"),
            (asked[3], "unknown"),
        ]
    assert broker.results().states([]) == []


def test_a_wait_ends_in_time_with_what_is_known(broker: ServerBroker, hand: Hand) -> None:
    (id,) = add(broker, 1)
    hand.take(1)
    for seconds in (0.1, 0.3, 0.7):
        began = time.monotonic()
        assert broker.results().wait([id], seconds) == [JobState(id, "running", queue="default")]
        assert seconds <= time.monotonic() - began < seconds + 0.25


def test_a_long_wait_asks_twice_a_second(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    (id,) = add(broker, 1)
    hand.take(1)
    before = server.lines
    assert broker.results().wait([id], 2.1)[0].state == "running"
    assert server.lines - before <= 7


def test_threads_share_one_connection(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 60)
    hand.take(60)
    threads = [start(lambda id=id: broker.results().wait([id], 20)) for id in ids]  # type: ignore[misc]
    until(lambda: parked(server, *ids))
    for id in reversed(ids):
        hand.done(id)
    for thread, _ in threads:
        thread.join()
    assert [out[0][0].state for _, out in threads] == ["done"] * 60
    assert server.most <= 1 + 2 + 1  # for adds, the hand's, for waits


def test_newcomers_are_asked_for_at_once(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    long, *short = add(broker, 21)
    hand.take(21)
    thread, out = start(lambda: broker.results().wait([long], 20))
    until(lambda: parked(server, long))
    began = time.monotonic()
    for id in short:
        hand.done(id)
        assert broker.results().wait([id], 20)[0].state == "done"
    assert time.monotonic() - began < 2
    hand.done(long)
    thread.join()
    assert out[0][0].state == "done"


def test_whoever_leads_gives_up_in_time_and_the_others_go_on(
    server: HubServer, broker: ServerBroker, hand: Hand
) -> None:
    first, second = add(broker, 2)
    hand.take(2)
    leading, led_out = start(lambda: broker.results().wait([first], 0.3))
    until(lambda: parked(server, first))
    other, out = start(lambda: broker.results().wait([second], 20))
    leading.join()
    assert led_out[0][0].state == "running"
    until(lambda: parked(server, second))
    hand.done(second)
    other.join()
    assert out[0][0].state == "done"
    assert server.most <= 4


def test_more_jobs_than_a_line_and_than_a_write_can_name(
    server: HubServer, broker: ServerBroker, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "IDS_PER_LINE", 10)
    monkeypatch.setattr(results, "LINES_PER_WRITE", 3)
    for count in (25, 95):
        ids = add(broker, count)
        hand._receipts.clear()
        hand.take(count)
        for id in (ids[0], ids[12], ids[-1]):
            left = [one for one in ids if one != id]
            thread, out = start(lambda: broker.results().wait([*left, id], 20))  # noqa: B023
            until(server.hub._parking.waits)
            hand.done(id)
            thread.join()
            assert [state.id for state in out[0] if state.state == "done"] == [id]
            ids = left


def test_results_above_the_room_of_one_answer(broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 9)
    hand.take(9)
    hand.done(*ids, result=b"x" * 1_000_000)
    for found in (broker.results().wait(ids, 20), broker.results().states(ids)):
        assert [len(state.result or b"") for state in found] == [1_000_000] * 9


def test_an_expired_result_under_a_waiter() -> None:
    with HubServer(Retention(result_ttl=100)) as server:
        broker = client(server.url)
        hand = Hand(broker)
        (id,) = add(broker, 1)
        hand.take(1)
        thread, out = start(lambda: broker.results().wait([id], 20))
        until(lambda: parked(server, id))
        hand.done(id)
        thread.join()
        assert out[0][0].state == "done"
        until(lambda: broker.results().wait([id], 5)[0].state == "expired")
        hand.close()
        broker.close()


# -- callers that cannot be blocked ---------------------------------------------------------------------------------


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tenure-results"]


def test_a_watcher_is_told(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 3)
    hand.take(3)
    told = [threading.Event() for _ in ids]
    watched = [broker.results().watch([id], None, event.set) for id, event in zip(ids, told, strict=True)]
    until(lambda: parked(server, *ids))
    assert len(helpers()) == 1
    for id, event, (answer, stop) in zip(ids, told, watched, strict=True):
        assert not event.is_set()
        hand.done(id)
        assert event.wait(5)
        assert answer()[0].state == "done"
        stop()
    until(lambda: not helpers())


def test_a_watcher_goes_on_when_a_thread_that_led_has_left(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    first, second = add(broker, 2)
    hand.take(2)
    thread, _ = start(lambda: broker.results().wait([first], 20))
    until(lambda: parked(server, first))
    event = threading.Event()
    answer, stop = broker.results().watch([second], None, event.set)
    assert helpers() == []
    hand.done(first)
    thread.join()
    until(lambda: parked(server, second))
    hand.done(second)
    assert event.wait(5)
    assert answer()[0].state == "done"
    stop()
    until(lambda: not helpers())


# -- breaking -------------------------------------------------------------------------------------------------------


def test_a_cut_connection_is_replaced_under_all_waiters(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 10)
    hand.take(10)
    threads = [start(lambda id=id: broker.results().wait([id], 20)) for id in ids]  # type: ignore[misc]
    until(lambda: parked(server, *ids))
    server.cut()
    until(lambda: parked(server, *ids))
    hand.done(*ids)
    for thread, out in threads:
        thread.join()
        assert out[0][0].state == "done"


def test_a_silent_connection_is_replaced() -> None:
    with Scripted(swallow, swallow, _all_done) as server:
        broker = client(server.url, read_limit=0.1)
        began = time.monotonic()
        assert broker.results().wait([new_id()], 20)[0].state == "done"
        assert time.monotonic() - began < 3
        assert len(server.peers) == 3
        broker.close()


def _all_done(peer: Peer) -> None:
    peer.hello()
    for command in peer.commands():
        lines = b"".join(b"state %b done q 1 0 - none 0\n\n" % id.hex().encode() for id in command.ids)  # type: ignore[union-attr]
        peer.send(b"states %d %d\n%b" % (len(command.ids), len(lines), lines))  # type: ignore[union-attr]


def test_a_timeout_is_exact_whatever_the_server_does() -> None:
    with Scripted(swallow, swallow) as server:
        broker = client(server.url, read_limit=5.0)
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match="did not answer in time"):
                broker.results().wait([new_id()], 0.2)
            assert 0.2 <= time.monotonic() - began < 0.45
        assert len(server.peers) == 1  # what is on its way is read by the next caller
        broker.close()


def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PATIENCE", 0.3)
    with HubServer() as server:
        url = server.url
    broker = client(url, add_timeout=0.2)
    with pytest.raises(BrokerUnavailable, match="no connection to the server"):
        broker.results().wait([new_id()], 20)
    with pytest.raises(BrokerUnavailable, match="no connection to the server"):
        broker.results().states([new_id()])
    broker.close()


@pytest.mark.parametrize("answer", [b"err unknown-verb there is no line 'wait'\n", b"err storage disk\n", b"ok\n"])
def test_answers_that_are_none(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PATIENCE", 0.2)

    def refuse(peer: Peer) -> None:
        peer.hello()
        for _ in peer.commands():
            peer.send(answer)

    with Scripted(*[refuse] * 100) as server:
        broker = client(server.url, add_timeout=0.2)
        with pytest.raises(BrokerUnavailable) as raised:
            broker.results().wait([new_id()], 20)
        assert isinstance(raised.value.__cause__, ServerError) == (b"unknown-verb" in answer)
        with pytest.raises((BrokerUnavailable, ServerError)):
            broker.results().states([new_id()])
        broker.close()


def test_an_interrupted_leader_leaves_the_others_waiting_well(
    server: HubServer, broker: ServerBroker, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = add(broker, 2)
    hand.take(2)
    receive = Pipe.receive
    interrupted = threading.Event()

    def torn(self: Pipe, limit: float) -> Any:
        found = receive(self, min(limit, 0.02))
        if not found and not interrupted.is_set() and parked(server, second):
            interrupted.set()
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Pipe, "receive", torn)
    leading, led_out = start(lambda: broker.results().wait([first], 20))
    until(lambda: parked(server, first))
    other, out = start(lambda: broker.results().wait([second], 20))
    leading.join()
    assert isinstance(led_out[0], KeyboardInterrupt)
    until(lambda: parked(server, second))
    hand.done(second)
    other.join()
    assert out[0][0].state == "done"


def test_closing_the_broker_ends_the_waits(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    ids = add(broker, 3)
    hand.take(3)
    threads = [start(lambda id=id: broker.results().wait([id], 20)) for id in ids]  # type: ignore[misc]
    event = threading.Event()
    answer, stop = broker.results().watch([ids[0]], None, event.set)
    until(lambda: parked(server, *ids))
    broker.close()
    for thread, out in threads:
        thread.join()
        assert str(out[0]) == "the broker is closed"
    assert event.wait(5)
    with pytest.raises(BrokerUnavailable, match="closed"):
        answer()
    stop()
    with pytest.raises(BrokerUnavailable, match="closed"):
        broker.results().wait([ids[0]], 20)
    with pytest.raises(BrokerUnavailable, match="closed"):
        broker.results().states([ids[0]])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_a_fork_waits_over_a_connection_of_its_own(
    server: HubServer, broker: ServerBroker, hand: Hand
) -> None:
    (id,) = add(broker, 1)
    hand.take(1)
    thread, out = start(lambda: broker.results().wait([id], 20))
    until(lambda: parked(server, id))
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if broker.results().wait([id], 20)[0].state == "done" else 2
        finally:
            os._exit(code)
    until(lambda: len(server.hub._parking.waits()) == 2)
    hand.done(id)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert out[0][0].state == "done"


def test_an_idle_connection_is_replaced(server: HubServer, broker: ServerBroker, hand: Hand) -> None:
    first, second = add(broker, 2)
    hand.take(2)
    hand.done(first, second)
    broker.results().wait([first], 5)
    pipe = broker.results()._pipe
    assert pipe is not None
    pipe.used_at -= 50
    assert broker.results().wait([second], 5)[0].state == "done"
    assert pipe.closed
