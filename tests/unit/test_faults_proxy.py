"""Each verb of the fault proxy, on real sockets, in front of a small echo server."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from tenure.faults import Direction, Proxy, Verdict
from tenure.faults.link import reset
from tenure.faults.orders import Conversation, Orders
from tenure.faults.proxy import parse_target
from tests.unit.proxied import QUIET, Client, Connect, Echo, Pair, WholeLines, eventually, meets_reset


def test_passes_big_bodies_both_ways(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    body = os.urandom(4 * 1024 * 1024)
    writer = threading.Thread(target=client.sock.sendall, args=(body,))
    writer.start()
    assert client.read(len(body)) == body
    writer.join()


def test_passes_a_half_close_on_and_closes_in_order(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    client.sock.sendall(b"the last words")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.read(100) == b"the last words"
    assert client.sock.recv(1) == b""
    assert eventually(lambda: proxy.connections == 0)


def test_counts_its_connections(proxy: Proxy, connect: Connect) -> None:
    clients = [connect(proxy) for _ in range(3)]
    assert [client.ask(b"hi") for client in clients] == [b"hi"] * 3
    assert proxy.connections == 3
    clients[0].sock.close()
    assert eventually(lambda: proxy.connections == 2)


def test_names_where_it_listens(proxy: Proxy) -> None:
    assert proxy.address == ("127.0.0.1", proxy.port)
    assert proxy.url == f"tenure://127.0.0.1:{proxy.port}"


def test_listens_on_the_other_kind_of_address_too(echo: Echo, connect: Connect) -> None:
    with Proxy(echo.target, listen=("::1", 0)) as proxy:
        assert proxy.url == f"tenure://[::1]:{proxy.port}"
        assert connect(proxy).ask(b"six") == b"six"


def test_a_server_that_is_not_there_resets_the_client(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()
    with Proxy(nobody) as proxy:
        assert meets_reset(connect, proxy)


def test_new_connections_follow_a_changed_target(proxy: Proxy, connect: Connect) -> None:
    with Echo() as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        proxy.target = other.target
        assert connect(proxy).ask(b"moved") == b"moved"
        assert other.received == b"moved"


def test_leads_to_a_unix_socket(tmp_path: Path, connect: Connect) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with Proxy(f"unix:{path}") as proxy:
            client = connect(proxy)
            client.sock.sendall(b"hello")
            server, _ = listener.accept()
            with server:
                assert server.recv(5) == b"hello"


def test_cut_resets_the_clients_and_new_connections_work(proxy: Proxy, connect: Connect) -> None:
    clients = [connect(proxy) for _ in range(3)]
    assert clients[0].ask(b"one") == b"one"
    assert proxy.cut() == 3
    assert all(client.is_reset() for client in clients)
    assert proxy.connections == 0
    assert connect(proxy).ask(b"two") == b"two"


def test_cut_resets_the_server_s_end_too(pair: Pair) -> None:
    pair.client.sock.sendall(b"x")
    assert pair.server.recv(1) == b"x"
    pair.proxy.cut()
    assert Client(pair.server).is_reset()


def test_a_reset_by_the_server_reaches_the_client(pair: Pair) -> None:
    reset(pair.server)
    assert pair.client.is_reset()
    assert eventually(lambda: pair.proxy.connections == 0)


def test_a_stall_holds_both_directions_until_pass_through(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    client = connect(proxy)
    assert client.ask(b"before") == b"before"
    assert proxy.stall() == 1
    client.sock.sendall(b"during")
    assert client.is_silent()
    assert b"during" not in echo.received
    assert connect(proxy).ask(b"new ones work") == b"new ones work"
    proxy.pass_through()
    assert client.read(6) == b"during"


def test_a_stall_holds_an_answer_back(pair: Pair) -> None:
    pair.server.sendall(b"a")
    assert pair.client.read(1) == b"a"
    pair.proxy.stall()
    pair.server.sendall(b"late")
    assert pair.client.is_silent()
    pair.proxy.pass_through()
    assert pair.client.read(4) == b"late"


def test_a_stall_ends_by_itself_and_delivers_late(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    client = connect(proxy)
    assert client.ask(b"before") == b"before"
    began = time.monotonic()
    proxy.stall(0.2)
    client.sock.sendall(b"late line")
    client.sock.close()
    assert echo.wait_for(b"late line")
    assert time.monotonic() - began >= 0.2


def test_a_stall_for_new_connections_too(proxy: Proxy, connect: Connect) -> None:
    proxy.stall(new_connections=False)
    client = connect(proxy)
    client.sock.sendall(b"anybody there?")
    assert client.is_silent()
    proxy.pass_through()
    assert client.read(14) == b"anybody there?"


def test_new_connections_stall_until_the_same_moment(proxy: Proxy, connect: Connect) -> None:
    began = time.monotonic()
    proxy.stall(0.2, new_connections=False)
    assert connect(proxy).ask(b"x") == b"x"
    assert time.monotonic() - began >= 0.2
    assert connect(proxy).ask(b"y") == b"y"


def test_a_later_stall_replaces_an_earlier_one(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    assert client.ask(b"x") == b"x"
    proxy.stall(0.01)
    proxy.stall()
    client.sock.sendall(b"y")
    assert client.is_silent()


def test_cut_ends_a_stalled_connection(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy)
    proxy.stall()
    assert proxy.cut() == 1
    assert client.is_reset()


def test_drop_answer_lets_the_request_through_and_swallows_the_answer(
    proxy: Proxy, echo: Echo, connect: Connect
) -> None:
    first, second = connect(proxy), connect(proxy)
    assert first.ask(b"before") == b"before"
    proxy.drop_answer()
    first.sock.sendall(b"add a job")
    assert first.is_reset()
    assert echo.wait_for(b"add a job")
    assert proxy.swallowed == 1
    assert second.ask(b"normal again") == b"normal again"


def test_drop_answer_counts_down(proxy: Proxy, connect: Connect) -> None:
    proxy.drop_answer(2)
    for _ in range(2):
        client = connect(proxy)
        client.sock.sendall(b"x")
        assert client.is_reset()
    assert connect(proxy).ask(b"x") == b"x"
    assert proxy.swallowed == 2


def test_pass_through_forgets_what_was_to_be_dropped_or_cut(proxy: Proxy, connect: Connect) -> None:
    proxy.drop_answer(5)
    proxy.cut_on_accept(5)
    proxy.pass_through()
    assert connect(proxy).ask(b"x") == b"x"


def test_cut_on_accept_resets_the_next_connections_only(proxy: Proxy, echo: Echo, connect: Connect) -> None:
    old = connect(proxy)
    proxy.cut_on_accept(2)
    assert meets_reset(connect, proxy)
    assert meets_reset(connect, proxy)
    assert connect(proxy).ask(b"third") == b"third"
    assert old.ask(b"old") == b"old"
    assert echo.received == b"thirdold"


def test_close_resets_refuses_and_may_be_repeated(echo: Echo, connect: Connect) -> None:
    proxy = Proxy(echo.target)
    client = connect(proxy)
    assert client.ask(b"x") == b"x"
    proxy.close()
    proxy.close()
    assert client.is_reset()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    with pytest.raises(RuntimeError, match="closed"):
        proxy.cut()


def test_close_always_ends_what_is_open(echo: Echo, connect: Connect) -> None:
    for _ in range(100):
        proxy = Proxy(echo.target)
        client = connect(proxy)
        assert proxy.cut() + proxy.connections == 1
        left = connect(proxy)
        proxy.close()
        assert client.is_reset()
        assert left.is_reset()
        assert proxy.connections == 0


class CutRequestsAfter:
    """A script that cuts once `limit` bytes of requests went through."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        if direction is Direction.ANSWER:
            return Verdict(forward=len(data))
        passed = min(self.left, len(data))
        self.left -= passed
        return Verdict(forward=passed, cut=self.left == 0)


def test_a_script_cuts_at_an_exact_byte(echo: Echo, connect: Connect) -> None:
    with Proxy(echo.target, script=lambda: CutRequestsAfter(7)) as proxy:
        client = connect(proxy)
        client.sock.sendall(b"0123456789")
        with contextlib.suppress(ConnectionResetError):
            client.read(10)
        assert eventually(lambda: proxy.connections == 0)
        assert echo.wait_for(b"0123456")
        assert echo.received == b"0123456"


class OneByteAtATime:
    """A script that throttles: one byte, then a pause."""

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        return Verdict(forward=1, wait=0.002)


def test_a_script_throttles_and_loses_nothing(echo: Echo, connect: Connect) -> None:
    with Proxy(echo.target, script=OneByteAtATime) as proxy:
        client = connect(proxy)
        began = time.monotonic()
        client.sock.sendall(b"0123456789")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.read(11) == b"0123456789"
        assert time.monotonic() - began >= 9 * 0.002


def test_a_script_keeps_bytes_until_more_come(echo: Echo, connect: Connect) -> None:
    with Proxy(echo.target, script=WholeLines) as proxy:
        client = connect(proxy)
        client.sock.sendall(b"half ")
        assert client.is_silent()
        client.sock.sendall(b"a line\nrest")
        assert client.read(12) == b"half a line\n"
        client.sock.shutdown(socket.SHUT_WR)
        assert client.read(5) == b"rest"


def test_an_idle_proxy_uses_no_processor(proxy: Proxy, connect: Connect) -> None:
    stalled = connect(proxy)
    assert stalled.ask(b"x") == b"x"
    proxy.stall()
    stalled.sock.close()
    idle = connect(proxy)
    assert idle.ask(b"x") == b"x"
    used = time.process_time()
    assert idle.is_silent()
    assert time.process_time() - used < QUIET / 2


def test_only_requests_after_the_order_lose_their_answer() -> None:
    orders = Orders()
    early, late = Conversation(orders), Conversation(orders)
    assert early.judge(Direction.REQUEST, b"ask") == Verdict(forward=3)
    orders.drop(1)
    assert early.judge(Direction.ANSWER, b"yes") == Verdict(forward=3)
    assert late.judge(Direction.REQUEST, b"ask") == Verdict(forward=3)
    assert late.judge(Direction.ANSWER, b"yes") == Verdict(swallow=3, cut=True)
    orders.drop(1)
    assert late.judge(Direction.ANSWER, b"more") == Verdict(forward=4)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("tenure://127.0.0.1:7000", ("127.0.0.1", 7000)),
        ("127.0.0.1:7000", ("127.0.0.1", 7000)),
        ("tenure://localhost", ("127.0.0.1", 7333)),
        ("tenure://[::1]:7000", ("::1", 7000)),
        ("unix:/tmp/s", "/tmp/s"),
        ("tenure+unix:///tmp/a%20b", "/tmp/a b"),
        (("127.0.0.1", 1), ("127.0.0.1", 1)),
    ],
)
def test_targets(text: str | tuple[str, int], target: str | tuple[str, int]) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["tenure://", "foo", "", "unix:", "tenure+unix://", ":7333", "foo:bar", "foo:0", "127.0.0.1:65536"]
)
def test_a_target_without_a_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{re.escape(text)}' names no server; use HOST:PORT"):
        parse_target(text)


def test_its_url_has_the_scheme_of_what_it_leads_to() -> None:
    for target, scheme in (("redis://127.0.0.1:6379", "redis"), ("tenure+unix:///run/t", "tenure"), ("a:1", "tenure")):
        with Proxy(target) as proxy:
            assert proxy.url == f"{scheme}://127.0.0.1:{proxy.port}"
