"""What a proxy does beyond cuts and plain stalls: one direction, exact bytes, late requests, slow lines."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from tenure.faults import Direction, Proxy, Schedule, run_schedule
from tenure.faults.schedule import DECK
from tests.unit.proxied import PATIENCE, Client, Connect, Echo, Pair, WholeLines, eventually


def test_a_stall_of_answers_lets_requests_through(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    client = connect(proxy)
    assert client.ask(b"before") == b"before"
    assert proxy.stall(direction=Direction.ANSWER) == 1
    client.sock.sendall(b"during")
    assert echo.wait_for(b"during")
    assert client.is_silent()
    proxy.pass_through()
    assert client.read(6) == b"during"


def test_a_stall_of_requests_lets_answers_through(pair: Pair) -> None:
    pair.proxy.stall(direction=Direction.REQUEST)
    pair.client.sock.sendall(b"held")
    pair.server.sendall(b"answer")
    assert pair.client.read(6) == b"answer"
    assert Client(pair.server).is_silent()
    pair.proxy.pass_through()
    assert pair.server.recv(10) == b"held"


def test_stalls_of_the_two_directions_end_apart(pair: Pair) -> None:
    pair.proxy.stall(0.1, direction=Direction.REQUEST)
    pair.proxy.stall(direction=Direction.ANSWER)
    pair.client.sock.sendall(b"request")
    pair.server.sendall(b"answer")
    assert pair.server.recv(10) == b"request"
    assert pair.client.is_silent()


def test_new_connections_stall_in_one_direction_too(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    proxy.stall(new_connections=False, direction=Direction.ANSWER)
    client = connect(proxy)
    client.sock.sendall(b"asked")
    assert echo.wait_for(b"asked")
    assert client.is_silent()


@pytest.mark.parametrize("count", [0, 1, 7, 9, 10])
def test_cut_after_lets_exactly_so_many_bytes_of_a_request_through(
    proxy: Proxy, echo: Echo, connect: Connect, count: int
) -> None:
    client = connect(proxy)
    assert client.ask(b"before") == b"before"
    proxy.cut_after(count, Direction.REQUEST)
    client.sock.sendall(b"0123456789")
    with contextlib.suppress(ConnectionResetError):
        client.read(11)
    assert eventually(lambda: proxy.connections == 0)
    assert echo.wait_for(b"before" + b"0123456789"[:count])
    assert echo.received == b"before" + b"0123456789"[:count]
    assert connect(proxy).ask(b"normal again") == b"normal again"


@pytest.mark.parametrize("count", [0, 1, 7, 9, 10])
def test_cut_after_lets_exactly_so_many_bytes_of_an_answer_through(proxy: Proxy, connect: Connect, count: int) -> None:
    client = connect(proxy)
    assert client.ask(b"before") == b"before"
    proxy.cut_after(count, Direction.ANSWER)
    client.sock.sendall(b"0123456789")
    assert client.read(count) == b"0123456789"[:count]
    assert client.is_reset()
    assert connect(proxy).ask(b"normal again") == b"normal again"


def test_cut_after_counts_each_connection_on_its_own(proxy: Proxy, connect: Connect) -> None:
    first, second = connect(proxy), connect(proxy)
    proxy.cut_after(4, Direction.REQUEST)
    assert first.ask(b"abc") == b"abc"
    assert second.ask(b"abc") == b"abc"
    first.sock.sendall(b"def")
    with contextlib.suppress(ConnectionResetError):
        assert first.read(3) != b"def"
    assert eventually(lambda: proxy.connections == 1)
    assert second.ask(b"def") == b"def"


def test_a_late_request_is_delivered_once_its_repeat_was_answered(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    old, other = connect(proxy), connect(proxy)
    proxy.late_request()
    old.sock.sendall(b"add 1;")
    assert old.is_silent()
    old.sock.close()
    assert other.ask(b"hello;") == b"hello;"
    assert other.is_silent()
    assert echo.received == b"hello;"
    assert other.ask(b"add 1;") == b"add 1;"
    assert echo.wait_for(b"hello;add 1;add 1;")
    assert eventually(lambda: proxy.connections == 1)


def test_a_late_request_waits_for_the_answer_to_its_repeat(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Proxy(listener.getsockname()) as proxy:
        listener.settimeout(PATIENCE)
        old, (old_server, _) = connect(proxy), listener.accept()
        new, (new_server, _) = connect(proxy), listener.accept()
        with old_server, new_server:
            proxy.late_request()
            old.sock.sendall(b"add 1;")
            assert old.is_silent()
            new.sock.sendall(b"add 1;")
            assert new_server.recv(10) == b"add 1;"
            assert Client(old_server).is_silent()
            new_server.sendall(b"ok")
            assert old_server.recv(10) == b"add 1;"


def test_a_late_request_comes_after_its_time(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    client = connect(proxy)
    proxy.late_request(0.2)
    began = time.monotonic()
    client.sock.sendall(b"late")
    assert client.is_silent()
    client.sock.close()
    assert connect(proxy).ask(b"first") == b"first"
    assert echo.wait_for(b"firstlate")
    assert time.monotonic() - began >= 0.2


def test_what_is_answered_to_a_late_request_reaches_nobody(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    client = connect(proxy)
    proxy.late_request(0.02)
    client.sock.sendall(b"late")
    assert client.is_reset()
    assert echo.received == b"late"


def test_a_late_request_of_a_client_that_has_gone_arrives_whole(proxy: Proxy, connect: Connect) -> None:
    body = os.urandom(200_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        proxy.target = listener.getsockname()
        client = connect(proxy)
        server, _ = listener.accept()
        with server:
            server.settimeout(PATIENCE)
            proxy.late_request(0.05)
            client.sock.sendall(body)
            client.sock.close()
            assert Client(server).read(len(body)) == body
            assert Client(server).is_silent()
            server.sendall(b"ok")
            assert Client(server).is_reset()


def test_pass_through_delivers_what_is_held_back(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    for seconds in (None, 3600.0):
        client = connect(proxy)
        proxy.late_request(seconds)
        client.sock.sendall(b"held")
        assert client.is_silent()
        proxy.pass_through()
        assert client.is_reset()
    assert echo.received == b"heldheld"
    assert connect(proxy).ask(b"normal again") == b"normal again"


def test_a_delay_keeps_each_piece_back(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.delay(0.1, direction=Direction.ANSWER)
    for _ in range(2):
        began = time.monotonic()
        assert client.ask(b"x") == b"x"
        assert time.monotonic() - began >= 0.1
    proxy.delay(0.1)
    began = time.monotonic()
    assert client.ask(b"y") == b"y"
    assert time.monotonic() - began >= 0.2
    proxy.delay(3600)
    proxy.delay(0)
    assert client.ask(b"z") == b"z"


def test_a_throttled_line_takes_its_time_and_loses_nothing(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.throttle(20_000, direction=Direction.REQUEST)
    body = os.urandom(4_000)
    began = time.monotonic()
    assert client.ask(body) == body
    assert time.monotonic() - began >= 0.15
    proxy.throttle(5)
    client.sock.sendall(b"last words")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.read(1) == b"l"
    assert client.is_silent()
    proxy.pass_through()
    assert client.read(10) == b"ast words"


def test_slow_lines_end_by_themselves(proxy: Proxy, connect: Connect) -> None:
    proxy.delay(0.01, seconds=3600.0)
    proxy.delay(3600.0, seconds=0.05)
    proxy.throttle(1, seconds=0.05)
    client = connect(proxy)
    assert eventually(lambda: not (proxy._orders.delays or proxy._orders.rates))
    assert client.ask(b"0123456789" * 10) == b"0123456789" * 10


def test_a_slow_line_and_a_script_that_waits_for_more_agree(echo: Echo, connect: Connect) -> None:
    with Proxy(echo.target, script=WholeLines) as proxy:
        proxy.throttle(500, direction=Direction.REQUEST)
        client = connect(proxy)
        client.sock.sendall(b"a line of some length\nanother line\n")
        assert client.read(35) == b"a line of some length\nanother line\n"


@pytest.mark.parametrize("seed", range(3))
def test_what_holds_bytes_up_loses_and_swaps_none(proxy: Proxy, connect: Connect, seed: int) -> None:
    deck = [card for card in DECK if card(Random(0)).verb in ("pass", "stall", "delay", "throttle")]
    body = os.urandom(1_000_000)
    client = connect(proxy)
    writer = threading.Thread(target=client.sock.sendall, args=(body,))
    weather = threading.Thread(target=run_schedule, args=(Schedule(seed, 0.4, deck, 0.002, 0.02), proxy))
    writer.start()
    weather.start()
    assert client.read(len(body)) == body
    writer.join()
    weather.join()


IMPOSSIBLE: list[tuple[Callable[[Proxy], object], str]] = [
    (lambda proxy: proxy.stall(-1), "seconds=-1 is not possible"),
    (lambda proxy: proxy.stall(0), "seconds=0 is not possible: give seconds above 0"),
    (lambda proxy: proxy.stall(math.nan), "seconds=nan is not possible: give a number of seconds"),
    (lambda proxy: proxy.stall(math.inf), "seconds=inf is not possible"),
    (lambda proxy: proxy.stall("5"), "seconds='5' is not possible"),  # type: ignore[arg-type]
    (lambda proxy: proxy.drop_answer(0), "count=0 is not possible: give a whole number of 1 or more"),
    (lambda proxy: proxy.drop_answer(True), "count=True is not possible"),
    (lambda proxy: proxy.cut_on_accept(-1), "count=-1 is not possible"),
    (lambda proxy: proxy.cut_on_accept(1.5), "count=1.5 is not possible"),  # type: ignore[arg-type]
    (
        lambda proxy: proxy.cut_after(-1, Direction.REQUEST),
        "count=-1 is not possible: give a whole number of 0 or more",
    ),
    (lambda proxy: proxy.late_request(0), "seconds=0 is not possible"),
    (lambda proxy: proxy.late_request(count=0), "count=0 is not possible"),
    (lambda proxy: proxy.delay(-0.1), "each=-0.1 is not possible: give a number of seconds, 0 or more"),
    (lambda proxy: proxy.delay(math.nan), "each=nan is not possible"),
    (lambda proxy: proxy.delay(1, seconds=0), "seconds=0 is not possible"),
    (lambda proxy: proxy.throttle(-5), "rate=-5 is not possible"),
    (lambda proxy: proxy.throttle(math.nan), "rate=nan is not possible"),  # type: ignore[arg-type]
    (lambda proxy: proxy.throttle(5, seconds=-1), "seconds=-1 is not possible"),
]


@pytest.mark.parametrize(("verb", "said"), IMPOSSIBLE, ids=[said for _, said in IMPOSSIBLE])
def test_a_verb_that_is_given_what_cannot_be_says_so_and_does_nothing(
    proxy: Proxy, connect: Connect, verb: Callable[[Proxy], object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        verb(proxy)
    assert connect(proxy).ask(b"as ever") == b"as ever"
