"""What a Redis server has to be set to before it is trusted with jobs."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import NamedTuple

import pytest

from tenure.brokers.redis.address import parse
from tenure.brokers.redis.checks import Settings, crash_costs, evicts
from tenure.brokers.redis.link import Link
from tenure.errors import ConfigError
from tests.stage.lua import COUNT
from tests.stage.redis_servers import RedisServer


class Said(NamedTuple):
    level: int
    text: str


def connect(url: str, caplog: pytest.LogCaptureFixture) -> list[Said]:
    """Call a script over a new link and return what was logged."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "tenure"), closing(Link(parse(url))) as link:
        link.call(COUNT, ["n"], [1], 5.0)
    return [Said(one.levelno, one.getMessage()) for one in caplog.records]


def test_a_server_that_evicts_is_refused_until_it_does_not(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"is 'volatile-lru'. Set it to noeviction \(CONFIG SET maxmemory-policy"):
            connect(redis_server.url, caplog)
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert len(connect(redis_server.url, caplog)) == 1


def test_what_a_crash_costs_is_said_once_for_each_run_of_a_server(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = connect(redis_server.url, caplog)
    assert said.level == logging.INFO
    assert said.text == (
        f"the server at 127.0.0.1:{redis_server.port} has appendonly yes, appendfsync always: "
        "an answered add is on its disk"
    )
    assert connect(redis_server.url, caplog) == []
    redis_server.restart()
    assert len(connect(redis_server.url, caplog)) == 1


def test_where_config_is_forbidden_info_says_what_it_knows(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.command("ACL", "SETUSER", "default", "-config")
    ((level, text),) = connect(redis_server.url, caplog)
    assert (level, text.partition(" has ")[2]) == (
        logging.INFO,
        "appendonly yes, appendfsync unknown: whether an answered add is on its disk depends on what it does not say",
    )
    with RedisServer(redis_server.place.parent / "other", "--maxmemory-policy", "allkeys-lfu") as other:
        other.command("ACL", "SETUSER", "default", "-config")
        with pytest.raises(ConfigError, match="maxmemory-policy is 'allkeys-lfu'"):
            connect(other.url, caplog)


@pytest.mark.parametrize(
    ("settings", "level", "text"),
    [
        (Settings("noeviction", "yes", "everysec"), logging.INFO, "answered in the last second or two"),
        (Settings("noeviction", "yes", "no"), logging.INFO, "answered in the last half minute or so"),
        (
            Settings("noeviction", "no", "", "3600 1"),
            logging.WARNING,
            "save '3600 1': a crash costs all since its last",
        ),
        (Settings("noeviction", "no", "", ""), logging.WARNING, "no save: a stop costs all jobs; set appendonly yes"),
        (Settings("noeviction", ""), logging.WARNING, "what a crash of it costs is not known"),
        (Settings("", "yes", "always"), logging.WARNING, "its maxmemory-policy could not be read"),
    ],
)
def test_the_line_says_what_a_crash_costs(settings: Settings, level: int, text: str) -> None:
    assert evicts(settings) == ""
    said = crash_costs(settings)
    assert said[0] == level
    assert text in said[1]
