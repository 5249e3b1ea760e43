"""The link to Redis, against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tenure.brokers.redis.address import parse
from tenure.brokers.redis.link import Link
from tenure.errors import ServerError
from tests.stage.lua import COUNT, ECHO, WRONG
from tests.stage.redis_servers import RedisServer


@pytest.fixture
def link(redis_server: RedisServer) -> Iterator[Link]:
    one = Link(parse(redis_server.url))
    yield one
    one.close()


def test_a_call_returns_what_the_script_does(link: Link) -> None:
    assert link.call(ECHO, ["k:é"], [b"\0\xff\r\n"], 5.0) == ["k:é".encode(), b"\0\xff\r\n"]
    assert link.call(COUNT, [b"n"], [7], 5.0) == 7
    assert link.call(COUNT, [b"n"], [1], 5.0) == 8
    big = b"x" * 2_000_000
    assert link.call(ECHO, [b"k"], [big], 5.0) == [b"k", big]
    assert link.call(ECHO, [b"k"], [1700000000.123456], 5.0) == [b"k", b"1700000000.123456"]


def test_a_script_that_the_server_forgot_is_sent_again(link: Link) -> None:
    assert link.call(COUNT, [b"n"], [1], 5.0) == 1
    link.command("SCRIPT", "FLUSH", limit=5.0)
    assert link.call(COUNT, [b"n"], [1], 5.0) == 2
    link.command("SCRIPT", "FLUSH", limit=5.0)
    assert link.pipeline([(COUNT, [b"n"], [1]), (ECHO, [b"n"], ["a"]), (COUNT, [b"n"], [1])], 5.0) == [
        3,
        [b"n", b"a"],
        4,
    ]


def test_a_pipeline_goes_on_behind_a_refusal(link: Link) -> None:
    first, refused, last = link.pipeline([(COUNT, [b"n"], [1]), (WRONG, [b"n"], []), (COUNT, [b"n"], [1])], 5.0)
    assert (first, last) == (1, 2)
    assert isinstance(refused, ServerError)
    assert refused.code == "WRONGTYPE"
    with pytest.raises(ServerError, match="WRONGTYPE"):
        link.call(WRONG, [b"n"], [], 5.0)
    assert link.call(COUNT, [b"n"], [1], 5.0) == 3


def test_a_pop_waits_for_its_key(link: Link, redis_server: RedisServer) -> None:
    assert not link.pop(b"wake", 0.0)
    assert not link.pop(b"wake", 0.02)
    redis_server.command("RPUSH", "wake", "1")
    assert link.pop(b"wake", 5.0)
    assert not link.pop(b"wake", 0.0)


def test_a_pop_that_waits_is_interrupted(link: Link, redis_server: RedisServer) -> None:
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(ConnectionError):
            link.pop(b"wake", 30.0)
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while redis_server.info("clients")["blocked_clients"] != "1":
        pass
    link.interrupt()
    assert ended.wait(5.0)
    waiting.join()
    assert not link.pop(b"wake", 0.0)


def test_each_run_of_a_server_has_its_own_id(link: Link, redis_server: RedisServer) -> None:
    assert link.run_id == ""
    first = link.run_of(b"k", 5.0)
    assert first == link.run_id == redis_server.info("server")["run_id"]
    link.call(COUNT, [b"n"], [1], 5.0)
    redis_server.restart()
    with pytest.raises(ConnectionError):
        link.call(COUNT, [b"n"], [1], 5.0)
    assert link.call(COUNT, [b"n"], [1], 5.0) == 2
    assert link.run_id == redis_server.info("server")["run_id"] != first


def test_a_server_that_stands_still_is_a_broken_connection(link: Link, redis_server: RedisServer) -> None:
    assert link.call(COUNT, [b"n"], [1], 5.0) == 1
    redis_server.freeze()
    with pytest.raises(ConnectionError, match=r"did not answer within 0\.05 s"):
        link.call(COUNT, [b"n"], [1], 0.05)
    with pytest.raises(ConnectionError, match="did not answer"):
        link.call(COUNT, [b"n"], [1], 0.05)
    redis_server.thaw()
    assert link.call(COUNT, [b"n"], [1], 5.0) == 3


def test_a_closed_link_stays_closed(link: Link) -> None:
    assert link.call(COUNT, [b"n"], [1], 5.0) == 1
    link.close()
    with pytest.raises(ConnectionError, match="closed"):
        link.call(COUNT, [b"n"], [1], 5.0)
