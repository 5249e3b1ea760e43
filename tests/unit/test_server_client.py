"""The client's adds against a server that breaks in every way: nothing lost, nothing twice, nobody waits for ever."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.broker import Added, Broker, ProducerCounts
from tenure.brokers import connect
from tenure.brokers.connection import Connection
from tenure.brokers.server import ServerBroker, from_url
from tenure.errors import BrokerUnavailable, ConfigError, KeyConflict, MessageTooLarge, ServerError
from tenure.retry import reconnect_delay
from tenure.wire import encode
from tenure.wire.commands import Add
from tests.unit.scripted import MovedClock, Peer, Scripted, body, cut, deaf, message, swallow


def client(server: Scripted, clock: MovedClock | None = None, **settings: Any) -> ServerBroker:
    settings = {"read_limit": 0.3, "connect_limit": 2.0, "roll": lambda: 0.0, **settings}
    return from_url(server.url, clock=clock or MovedClock(), **settings)


def line(number: int) -> bytes:
    return encode.add(message(number), body(number))


def after_hello(peer: Peer) -> bytes:
    return peer.got.split(b"\n", 1)[1]


def test_an_add_is_created_and_counted() -> None:
    with Scripted() as server:
        broker = client(server)
        assert broker.add([message(1)]) == [Added(message(1).id, True)]
        assert broker.add([]) == []
        assert broker.counts() == ProducerCounts(1, 0, 0)
        broker.close()


@pytest.mark.parametrize("fault", [cut, deaf, swallow])
def test_a_broken_connection_is_replaced_and_the_same_bytes_are_sent_again(fault: Callable[[Peer], None]) -> None:
    with Scripted(fault, fault) as server:
        broker = client(server, connect_limit=0.3)
        assert broker.add([message(1)]) == [Added(message(1).id, True)]
        assert after_hello(server.peers[2]) == line(1)
        assert broker.counts() == ProducerCounts(1, 0, 0)
        broker.close()


def test_an_answer_that_trickles_does_not_extend_the_limit() -> None:
    def trickle(peer: Peer) -> None:
        peer.hello()
        peer.read()
        for _ in range(200):
            if peer.until_closed(0.02):
                return
            peer.send(b"o")

    with Scripted(trickle) as server:
        broker = client(server)
        began = time.monotonic()
        assert broker.add([message(1)])[0].created
        assert time.monotonic() - began < 3
        broker.close()


@pytest.mark.parametrize("torn", [b"", b"o", b"ok 0000"])
def test_of_a_torn_batch_only_the_unanswered_lines_are_sent_again(torn: bytes) -> None:
    def one_answer(peer: Peer) -> None:
        peer.hello()
        peer.read()
        peer.send(f"ok {message(1).id} created\n".encode() + torn)

    with Scripted(one_answer) as server:
        broker = client(server)
        assert [added.created for added in broker.add([message(n) for n in (1, 2, 3)])] == [True] * 3
        assert after_hello(server.peers[1]) == line(2) + line(3)
        assert broker.counts() == ProducerCounts(3, 0, 0)
        broker.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"ok what\n",
        b"nonsense\n",
        b"ok %032x created\n" % 77,
        b"ok %032x created\nok\n" % 1,
        b"ok %032x created\nok" % 1,
        b"jobs 1 x\n",
        b"x" * 70_000,
    ],
)
def test_an_answer_that_no_rule_allows_ends_the_connection_and_the_line_is_repeated(answer: bytes) -> None:
    def wrong(peer: Peer) -> None:
        peer.hello()
        peer.read()
        peer.send(answer)
        peer.until_closed()

    with Scripted(wrong) as server:
        broker = client(server)
        assert broker.add([message(1)]) == [Added(message(1).id, True)]
        assert broker.counts().added == 1
        broker.close()


def test_a_store_that_cannot_write_is_asked_again_on_the_same_connection() -> None:
    def full_once(peer: Peer) -> None:
        peer.hello()
        peer.read()
        peer.send(f"err storage disk full\nok {message(2).id} created\n".encode())
        peer.read()
        peer.send(f"ok {message(1).id} created\n".encode())
        peer.until_closed()

    with Scripted(full_once) as server:
        clock = MovedClock()
        broker = client(server, clock)
        assert [added.id for added in broker.add([message(1), message(2)])] == [message(1).id, message(2).id]
        assert after_hello(server.peers[0]) == line(1) + line(2) + line(1)
        assert clock.waits == [reconnect_delay(1, 0.0)]
        broker.close()


def test_giving_up_tells_why_the_server_could_not_store_it() -> None:
    def full(peer: Peer) -> None:
        peer.hello()
        while peer.read():
            peer.send(b"err storage database or disk is full; nothing was done, send the line again later\n")

    with Scripted(*[full] * 3) as server:
        broker = client(server, add_timeout=1.0)
        for _ in range(2):  # the second one goes over a connection that is idle
            with pytest.raises(
                BrokerUnavailable, match="the server answered storage: database or disk is full"
            ) as caught:
                broker.add([message(1)])
            assert isinstance(caught.value.__cause__, ServerError)
            assert caught.value.__cause__.__traceback__ is None, "a cause's own frames would hide the caller's"
            assert "no answer in time" not in str(caught.value)
        broker.close()


def test_without_a_server_the_error_asks_for_it() -> None:
    with Scripted() as server:
        url = server.url
    broker = from_url(url, clock=MovedClock(), add_timeout=1.0, read_limit=0.3, roll=lambda: 0.0)
    with pytest.raises(BrokerUnavailable, match=r"no connection to the server .* is `tenure server` running there"):
        broker.add([message(1)])
    broker.close()


def test_a_peer_that_speaks_http_is_asked_about() -> None:
    def http(peer: Peer) -> None:
        peer.socket.recv(65536)
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        peer.until_closed()

    with Scripted(*[http] * 100) as server:
        broker = client(server, add_timeout=0.5)
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{server.port} .*is that a Tenure server"):
            broker.add([message(1)])
        with pytest.raises(BrokerUnavailable, match=r"is that a Tenure server\?$"):
            broker.admin().record()
        broker.close()


def test_the_time_that_was_waited_is_shown_rounded() -> None:
    with Scripted(*[swallow] * 100) as server:
        broker = client(server, add_timeout=0.5, read_limit=0.03123)
        with pytest.raises(BrokerUnavailable, match=r"did not answer within 0.03 s"):
            broker.add([message(1)])
        broker.close()


def test_giving_up_says_what_is_known_and_a_resend_is_counted_once() -> None:
    with Scripted(*[swallow] * 100) as server:
        clock = MovedClock()
        broker = client(server, clock, add_timeout=1.0, read_limit=0.03)
        began = clock.now
        with pytest.raises(BrokerUnavailable, match="not confirmed; safe to send again") as caught:
            broker.add([message(1, key="k")])
        assert clock.now - began == pytest.approx(1.0)
        assert (caught.value.id, caught.value.key) == (message(1).id, "k")
        assert broker.counts() == ProducerCounts(0, 0, 1)
        with pytest.raises(BrokerUnavailable) as again:
            caught.value.resend()
        assert broker.counts() == ProducerCounts(0, 0, 1)
        server.scripts.clear()
        assert again.value.resend() == [Added(message(1).id, True)]
        assert broker.counts() == ProducerCounts(1, 0, 0)
        broker.close()


def test_no_resend_five_minutes_after_the_first_write() -> None:
    with Scripted(*[swallow] * 100) as server:
        clock = MovedClock()
        broker = client(server, clock, add_timeout=0.1, read_limit=0.03)
        with pytest.raises(BrokerUnavailable) as caught:
            broker.add([message(1)])
        server.scripts.clear()
        clock.now += 300
        with pytest.raises(BrokerUnavailable, match="explicit key is still safe"):
            caught.value.resend()
        assert server.stored == {}
        broker.close()


def test_repeats_stop_five_minutes_after_the_first_write_also_inside_a_resend() -> None:
    with Scripted(*[swallow] * 100) as server:
        clock = MovedClock()
        broker = client(server, clock, add_timeout=0.5, read_limit=0.03)
        began = clock.now
        with pytest.raises(BrokerUnavailable) as caught:
            broker.add([message(1)])
        clock.now = began + 299.9
        with pytest.raises(BrokerUnavailable):
            caught.value.resend()
        assert clock.now == pytest.approx(began + 300)
        broker.close()


def test_an_answer_that_names_an_unconfirmed_job_counts_it_as_added() -> None:
    lost: list[bytes] = []

    with Scripted() as server:

        def stored_but_silent(peer: Peer) -> None:
            peer.hello()
            lost.extend(server.answer(command) for command in peer.read() if isinstance(command, Add))

        server.scripts = [stored_but_silent] * 50
        broker = client(server, add_timeout=0.2)
        with pytest.raises(BrokerUnavailable) as caught:
            broker.add([message(1, key="k")])
        assert broker.counts() == ProducerCounts(0, 0, 1)
        server.scripts.clear()
        assert broker.add([message(2, key="k")]) == [Added(message(1).id, False)]
        assert broker.counts() == ProducerCounts(1, 1, 0)
        assert caught.value.resend() == [Added(message(1).id, True)]
        assert broker.counts() == ProducerCounts(1, 1, 0)
        assert set(lost) == {f"ok {message(1).id} created\n".encode()}
        broker.close()


def test_a_key_that_is_held_by_another_call_is_that_messages_error_alone() -> None:
    with Scripted() as server:
        broker = client(server)
        broker.add([message(1, key="k")])
        conflict, other = broker.add([message(2, key="k", fingerprint=b"g" * 16), message(3)])
        assert isinstance(conflict.error, KeyConflict)
        assert (conflict.error.id, conflict.error.first_id, conflict.error.key) == (message(2).id, message(1).id, "k")
        assert other.created
        assert broker.counts() == ProducerCounts(2, 0, 0)
        broker.close()


def test_nothing_is_sent_for_a_message_above_the_servers_limit() -> None:
    with Scripted(body=2_000_000) as server:
        broker = client(server, read_limit=5.0)
        assert broker.add([message(1, args=b"x" * 1_500_000)])[0].created
        assert broker.capabilities.max_body == 2_000_000
        large, small = broker.add([message(2, args=b"x" * 2_500_000), message(3)])
        assert isinstance(large.error, MessageTooLarge)
        assert large.error.limit == 2_000_000
        assert small.created
        assert list(server.stored) == [message(1).id, message(3).id]
        broker.close()


def test_a_limit_that_the_client_did_not_know_is_an_error_too() -> None:
    def small(peer: Peer) -> None:
        peer.hello()
        peer.read()
        peer.send(b"err too-large limit is 10\nerr bad-line what\n")
        peer.until_closed()

    with Scripted(small, body=10) as server:
        broker = client(server)
        large, bad = broker.add([message(1), message(2)])
        assert isinstance(large.error, MessageTooLarge)
        assert isinstance(bad.error, ServerError)
        assert broker.counts() == ProducerCounts(0, 0, 0)
        broker.close()


def test_a_message_without_a_wire_form_does_not_stop_the_others() -> None:
    with Scripted() as server:
        broker = client(server)
        bad, long, good = broker.add([message(1, key="\ud800"), message(2, key="k" * 70_000), message(3)])
        assert bad.error is not None
        assert long.error is not None
        assert good.created
        broker.close()


def test_many_messages_go_out_in_batches_below_the_limits() -> None:
    with Scripted() as server:
        broker = client(server, read_limit=5.0)
        added = broker.add([message(n) for n in range(2_300)])
        assert [one.id for one in added] == [message(n).id for n in range(2_300)]
        assert list(server.stored) == [one.id for one in added]
        assert broker.counts().added == 2_300
        broker.close()


def test_a_server_that_speaks_another_version_is_not_asked_again() -> None:
    def newer(peer: Peer) -> None:
        peer.read()
        peer.send(b"err version this server speaks 2\n")
        peer.until_closed()

    def crowded(peer: Peer) -> None:
        peer.read()
        peer.send(b"err limit too many connections\n")
        peer.until_closed()

    with Scripted(newer, crowded) as server:
        broker = client(server)
        with pytest.raises(BrokerUnavailable, match="speaks 2"):
            broker.add([message(1)])
        assert len(server.peers) == 1
        assert broker.add([message(2)])[0].created
        broker.close()


def test_no_server_at_all_is_named_in_the_error() -> None:
    with Scripted() as server:
        port = server.port
    broker = from_url(f"tenure://127.0.0.1:{port}", clock=MovedClock(), add_timeout=1.0)
    with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}"):
        broker.add([message(1)])


def test_a_closed_broker_gives_up_at_once() -> None:
    with Scripted() as server:
        broker = client(server)
        broker.close()
        with pytest.raises(BrokerUnavailable, match="closed"):
            broker.add([message(1)])


def test_an_idle_connection_is_replaced_before_the_server_closes_it() -> None:
    with Scripted() as server:
        broker = client(server, clock := MovedClock())
        broker.add([message(1)])
        broker.pool._idle[0].used_at = clock.now
        clock.now += 44
        broker.add([message(2)])
        assert len(server.peers) == 1
        broker.pool._idle[0].used_at = clock.now
        clock.now += 46
        broker.add([message(3)])
        assert len(server.peers) == 2
        broker.close()


def test_after_a_fault_the_idle_connections_are_dropped() -> None:
    with Scripted() as server:
        broker = client(server, read_limit=1.0)
        first, second, third = (broker.pool.lend(1.0) for _ in range(3))
        broker.pool.give_back(first)
        broker.pool.give_back(second)
        broker.pool.give_up(third)
        assert (first.closed, second.closed, third.closed) == (True, True, True)
        assert broker.add([message(1)])[0].created
        broker.close()


def test_waiting_for_a_free_connection_is_bounded_and_ends_when_one_comes_back() -> None:
    with Scripted() as server:
        broker = client(server, pool_size=1, read_limit=1.0)
        lent = broker.pool.lend(1.0)
        with pytest.raises(ConnectionError, match="pool_size"):
            broker.pool.lend(0.01)
        found: list[Connection] = []
        thread = threading.Thread(target=lambda: found.append(broker.pool.lend(10.0)))
        thread.start()
        broker.pool.give_back(lent)
        thread.join()
        assert found == [lent]
        broker.pool.give_back(lent)
        broker.close()


def test_who_waits_for_a_connection_gets_it_before_who_has_just_had_it() -> None:
    with Scripted() as server:
        broker = client(server, pool_size=1)
        lent = broker.pool.lend(1.0)
        order: list[int] = []

        def waits(number: int) -> None:
            found = broker.pool.lend(10.0)
            order.append(number)
            broker.pool.give_back(found)

        threads = []
        for number in range(3):
            threads.append(threading.Thread(target=waits, args=(number,)))
            threads[-1].start()
            while len(broker.pool._waiters) <= number:
                threads[-1].join(0.001)
        broker.pool.give_back(lent)
        waits(3)
        for thread in threads:
            thread.join()
        assert order == [0, 1, 2, 3]
        broker.close()
        broker.close()


def test_a_connection_that_is_never_given_back_leaves_its_place() -> None:
    """An exception may tear a call out of its middle at any instruction, also between two that belong together."""
    with Scripted() as server:
        broker = client(server, pool_size=1)
        for number in range(3):
            lost = broker.pool.lend(1.0)
            lost.close()
            del lost
            assert broker.add([message(number)])[0].created
            broker.pool.give_up(broker.pool.lend(1.0))
        broker.close()


def test_too_many_open_files_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    broker = from_url("tenure://127.0.0.1:1", clock=MovedClock(), add_timeout=1.0, roll=lambda: 0.0)
    monkeypatch.setattr("tenure.brokers.dialing.socket.socket", full)
    with pytest.raises(BrokerUnavailable, match=r"Too many open files; close some, or raise `ulimit -n`"):
        broker.add([message(1)])


def test_threads_share_the_pool_and_the_counts() -> None:
    with Scripted() as server:
        broker = client(server, pool_size=3, read_limit=5.0)
        threads = [
            threading.Thread(target=lambda n=n: [broker.add([message(100 * n + i)]) for i in range(40)])
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert broker.counts() == ProducerCounts(320, 0, 0)
        assert len(server.stored) == 320
        assert len(server.peers) <= 3
        broker.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own_and_leaves_the_parents_alone() -> None:
    with Scripted() as server:
        broker = client(server, read_limit=2.0, connect_limit=2.0)
        broker.add([message(1)])
        pid = os.fork()
        if not pid:  # the child must not run the test's clean-up, so it leaves by _exit whatever happens
            code = 1
            try:
                added = broker.add([message(2)])
                code = 0 if added[0].created and broker.counts() == ProducerCounts(1, 0, 0) else 2
                broker.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert broker.add([message(3)])[0].created
        assert broker.counts() == ProducerCounts(2, 0, 0)
        assert after_hello(server.peers[0]) == line(1) + line(3)
        assert after_hello(server.peers[1]) == line(2)
        assert server.peers[0].got.split()[2] != server.peers[1].got.split()[2]
        broker.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("tenur://x", "Did you mean tenure://"),
        ("kafka://x", "tenure://, tenure\\+unix://"),
        ("tenure", "no known scheme"),
        ("tenure://", "HOST"),
        ("tenure://h:99999", "ort"),
        ("tenure://h/path", "HOST"),
        ("tenure://h?x=1", "leave the rest out"),
        ("tenure+unix://h/x", "names no socket"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        connect(url)


def test_a_wrong_setting_says_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'add_timeout'"):
        connect("tenure://h", add_timout=3)
    for name, value in (("add_timeout", 0), ("add_timeout", 301), ("pool_size", 0)):
        with pytest.raises(ConfigError):
            connect("tenure://h", keeping=None, **{name: value})


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no unix sockets")
def test_a_unix_socket_serves_as_well(tmp_path: Path) -> None:
    with Scripted(cut, path=str(tmp_path / "s")) as server:
        broker: Broker = client(server)
        assert broker.add([message(1)])[0].created
        broker.close()
    broker = client(server, add_timeout=0.2)
    with pytest.raises(BrokerUnavailable, match="unix:"):
        broker.add([message(1)])


def test_addresses_of_urls() -> None:
    assert str(from_url("tenure://example.org").address) == "example.org:7333"
    assert str(from_url("tenure://[::1]:99").address) == "[::1]:99"
    assert str(from_url("tenure+unix:///run/a%20b.sock").address) == "unix:/run/a b.sock"


def test_ten_reconnects_fit_into_two_seconds_and_later_ones_are_at_most_one_apart() -> None:
    assert sum(reconnect_delay(attempt, 1.0) for attempt in range(1, 11)) <= 2
    assert [reconnect_delay(attempt, 1.0) for attempt in (20, 100, 100_000)] == [1.0] * 3
    for attempt in range(1, 30):
        assert reconnect_delay(attempt, 0.0) == pytest.approx(reconnect_delay(attempt, 1.0) / 2)
