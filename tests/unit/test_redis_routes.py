"""Finding the server: Sentinels and clusters, real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from tenure.brokers.redis.address import parse
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.routes import RECHECK, slot_of
from tenure.errors import ConfigError
from tests.stage.lua import COUNT
from tests.stage.redis_servers import Cluster, RedisServer, Watched, until

Opened = Callable[[str], Link]
KEYS = [f"{{queue-{number}}}:n".encode() for number in range(30)]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Makes links by URL, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(closing(Link(parse(url))))


def test_the_slot_is_that_of_what_stands_in_the_first_braces() -> None:
    # The numbers are those of the specification of Redis clusters.
    assert slot_of(b"123456789") == 0x31C3 % 16384
    assert slot_of("{user1000}.following") == slot_of(b"user1000") == slot_of("a{user1000}{b}")
    assert slot_of(b"foo{}{bar}") != slot_of(b"bar")


def test_sentinels_name_the_primary_before_and_after_a_failover(opened: Opened, redis_watched: Watched) -> None:
    link = opened(redis_watched.url)
    assert link.call(COUNT, [b"n"], [1], 5.0) == 1
    assert link.command("WAIT", 1, 5000, limit=6.0) == 1
    redis_watched.fail_over()
    promoted = redis_watched.replica.info("server")["run_id"]

    def arrived() -> bool:
        with suppress(ConnectionError):
            link.call(COUNT, [b"n"], [1], 5.0)
        return link.run_id == promoted

    until(arrived, "the link finds the new primary", RECHECK + 5.0)
    assert redis_watched.replica.command("GET", "n") == b"2"


def test_a_service_that_no_sentinel_watches_is_named(opened: Opened, redis_watched: Watched) -> None:
    link = opened(f"{redis_watched.url}-other")
    with pytest.raises(ConfigError, match=r"no Sentinel at .* watches a service 'jobs-other'"):
        link.call(COUNT, [b"n"], [1], 5.0)


def test_each_key_goes_to_the_node_that_has_its_slot(opened: Opened, redis_cluster: Cluster) -> None:
    link = opened(redis_cluster.url)
    calls = [(COUNT, [key], [number]) for number, key in enumerate(KEYS)]
    assert link.pipeline(calls, 5.0) == list(range(30))
    assert [link.call(COUNT, [key], [1], 5.0) for key in KEYS] == list(range(1, 31))
    runs = {node.info("server")["run_id"] for node in redis_cluster.nodes}
    assert {link.run_of(key, 5.0) for key in KEYS} == runs


def test_a_slot_that_has_moved_is_followed(opened: Opened, redis_cluster: Cluster) -> None:
    link, key = opened(redis_cluster.url), b"{moved}:n"
    slot = slot_of(key)
    assert link.call(COUNT, [b"{moved}:other"], [1], 5.0) == 1
    link.command("DEL", "{moved}:other", limit=5.0, key="{moved}:other")
    source = next(node for node in redis_cluster.nodes if node.info("server")["run_id"] == link.run_of(key, 5.0))
    target = next(node for node in redis_cluster.nodes if node is not source)
    name = target.command("CLUSTER", "MYID")
    for node in redis_cluster.nodes:
        node.command("CLUSTER", "SETSLOT", slot, "NODE", name)
    assert link.call(COUNT, [key], [1], 5.0) == 1
    assert link.pipeline([(COUNT, [key], [1])], 5.0) == [2]
    assert link.run_of(key, 5.0) == target.info("server")["run_id"]


def test_a_script_waits_while_its_slot_moves(opened: Opened, redis_cluster: Cluster) -> None:
    link, key = opened(redis_cluster.url), b"{moving}:n"
    assert link.call(COUNT, [key], [1], 5.0) == 1
    first = link.run_of(key, 5.0)
    source = next(node for node in redis_cluster.nodes if node.info("server")["run_id"] == first)
    target = next(node for node in redis_cluster.nodes if node is not source)
    target.command("CLUSTER", "SETSLOT", slot_of(key), "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot_of(key), "MIGRATING", target.command("CLUSTER", "MYID"))
    for _ in range(2):
        with pytest.raises(ConnectionError, match="TRYAGAIN"):
            link.call(COUNT, [key], [1], 5.0)
        with pytest.raises(ConnectionError, match="TRYAGAIN"):
            link.pipeline([(COUNT, [key], [1]), (COUNT, [key], [1])], 5.0)
        assert source.command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000) in (b"OK", b"NOKEY")
    for node in (target, *redis_cluster.nodes):
        node.command("CLUSTER", "SETSLOT", slot_of(key), "NODE", target.command("CLUSTER", "MYID"))
    assert link.call(COUNT, [key], [1], 5.0) == 2
    assert link.run_of(key, 5.0) == target.info("server")["run_id"]


def test_the_wrong_kind_of_url_is_named_with_the_right_one(
    opened: Opened, redis_cluster: Cluster, redis_watched: Watched, redis_server: RedisServer
) -> None:
    node, sentinel, replica = redis_cluster.nodes[0], redis_watched.sentinels[0], redis_watched.replica
    with pytest.raises(ConfigError, match=rf"write redis\+cluster://127\.0\.0\.1:{node.port}"):
        opened(node.url).run_of(b"k", 5.0)
    with pytest.raises(ConfigError, match=rf"write redis\+sentinel://127\.0\.0\.1:{sentinel.port}/SERVICE"):
        opened(sentinel.url).run_of(b"k", 5.0)
    with pytest.raises(ConnectionError, match="is a replica now"):
        opened(replica.url).run_of(b"k", 5.0)
    with pytest.raises(ConfigError, match=r"cluster support disabled|is in no cluster"):
        opened(f"redis+cluster://127.0.0.1:{redis_server.port}").run_of(b"k", 5.0)


def test_who_is_no_sentinel_or_in_no_cluster_is_named(opened: Opened, redis_server: RedisServer) -> None:
    place = f"127.0.0.1:{redis_server.port}"
    with pytest.raises(ConfigError, match=f"{place} is no Sentinel: name the Sentinels, or write redis://{place}"):
        opened(f"redis+sentinel://{place}/service").run_of("k", 5.0)
    with pytest.raises(ConfigError, match=f"{place} is in no cluster: write redis://{place}"):
        opened(f"redis+cluster://{place}").run_of("k", 5.0)
    with pytest.raises(ConnectionError, match=r"no Sentinel answered at 127\.0\.0\.1:1, 127\.0\.0\.1:2: "):
        opened("redis+sentinel://127.0.0.1:1,127.0.0.1:2/service").run_of("k", 5.0)
