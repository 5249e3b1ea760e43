"""What a Redis server refuses, and what is made of it; against real servers."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hiredis import ReplyError

from tenure.brokers.redis.address import parse
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.refusals import meaning
from tenure.errors import ConfigError, ProtocolError, ServerError
from tenure.faults import Direction, Proxy
from tests.stage.lua import COUNT, ECHO, LARGE
from tests.stage.redis_servers import RedisServer, TlsServer, Watched, certificate

Opened = Callable[[str], Link]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Makes links by URL, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(closing(Link(parse(url))))


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("READONLY You can't write against a read only replica.", ConnectionError, None),
        ("LOADING Redis is loading the dataset in memory", ConnectionError, None),
        ("MASTERDOWN Link with MASTER is down", ConnectionError, None),
        ("CLUSTERDOWN The cluster is down", ConnectionError, None),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ConnectionError, None),
        ("NOREPLICAS Not enough good replicas to write.", ConnectionError, None),
        ("UNBLOCKED force unblock from blocking operation", ConnectionError, None),
        ("ERR max number of clients reached", ConnectionError, None),
        ("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't", ConnectionError, None),
        ("NOAUTH Authentication required.", ConfigError, None),
        ("WRONGPASS invalid username-password pair or user is disabled.", ConfigError, None),
        ("NOPERM this user has no permissions to run the 'evalsha' command", ConfigError, None),
        ("OOM command not allowed when used memory > 'maxmemory'.", ServerError, "OOM"),
        ("ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", ServerError, "OOM"),
        ("MISCONF Redis is configured to save RDB snapshots", ServerError, "MISCONF"),
        ("ERR user_script:1: Script attempted to access nonexistent global variable", ServerError, "ERR"),
    ],
)
def test_a_refusal_is_for_later_for_good_or_for_the_caller(text: str, kind: type[Exception], code: str | None) -> None:
    error = meaning(ReplyError(text), "a:1")
    assert type(error) is kind
    assert getattr(error, "code", None) == code


def test_full_memory_refuses_what_needs_more_and_the_connection_goes_on(link: Link, redis_server: RedisServer) -> None:
    assert link.call(COUNT, ["n"], [1], 5.0) == 1
    redis_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(ServerError, match="OOM: command not allowed") as caught:
        link.call(LARGE, ["k"], [b"x" * 1000], 5.0)
    assert caught.value.code == "OOM"
    assert link.call(ECHO, ["k"], ["still here"], 5.0) == [b"k", b"still here"]


@pytest.fixture
def link(redis_server: RedisServer, opened: Opened) -> Link:
    """A link to a server of its own."""
    return opened(redis_server.url)


def test_access_that_is_refused_ends_in_what_to_write(redis_server: RedisServer, opened: Opened) -> None:
    place = f"127.0.0.1:{redis_server.port}"
    with pytest.raises(ConfigError, match="wants no password, and the broker URL has one; leave it out"):
        opened(f"redis://:secret@{place}").run_of("k", 5.0)
    with pytest.raises(ConfigError, match="has no database 99"):
        opened(f"redis://{place}/99").run_of("k", 5.0)
    for words in ("reader on >read ~* +info +select +config", "full on >all ~* &* +@all", "default off"):
        redis_server.command("ACL", "SETUSER", *words.split())
    with pytest.raises(ConfigError, match=r"it wants a password: write redis://:PASSWORD@HOST"):
        opened(redis_server.url).run_of("k", 5.0)
    with pytest.raises(ConfigError, match="it does not know this user, or this password"):
        opened(f"redis://full:wrong@{place}").run_of("k", 5.0)
    with pytest.raises(ConfigError, match="this user may not do that"):
        opened(f"redis://reader:read@{place}").call(COUNT, ["n"], [1], 5.0)
    assert opened(f"redis://full:all@{place}/3").call(COUNT, ["n"], [1], 5.0) == 1


def test_a_primary_that_became_a_replica_is_left(redis_server: RedisServer, link: Link) -> None:
    assert link.call(COUNT, ["n"], [1], 5.0) == 1
    redis_server.command("REPLICAOF", "127.0.0.1", redis_server.port)
    with pytest.raises(ConnectionError, match="READONLY"):
        link.call(COUNT, ["n"], [1], 5.0)
    with pytest.raises(ConnectionError, match="is a replica now, which takes no writes"):
        link.call(COUNT, ["n"], [1], 5.0)
    redis_server.command("REPLICAOF", "NO", "ONE")
    assert link.call(COUNT, ["n"], [1], 5.0) == 2


def test_an_answer_waits_for_its_replicas_where_the_url_says_so(redis_watched: Watched, opened: Opened) -> None:
    url = f"redis://127.0.0.1:{redis_watched.primary.port}?replicas="
    one, two = opened(f"{url}1"), opened(f"{url}2")
    assert one.call(COUNT, ["n"], [1], 5.0) == 1
    assert redis_watched.replica.command("GET", "n") == b"1"
    assert one.pipeline([(COUNT, ["n"], [1]), (ECHO, ["n"], ["a"])], 5.0) == [2, [b"n", b"a"]]
    with pytest.raises(ConnectionError, match=r"1 replicas of the server at .* have it in time, not 2"):
        two.call(COUNT, ["n"], [1], 0.4)
    redis_watched.replica.freeze()
    with pytest.raises(ConnectionError, match="0 replicas"):
        one.call(COUNT, ["n"], [1], 0.4)
    with pytest.raises(ConnectionError, match="0 replicas"):
        one.call(ECHO, ["n"], ["what was written before may be lost as well"], 0.4)
    redis_watched.replica.thaw()
    assert one.call(COUNT, ["n"], [1], 5.0) == 5


def test_what_listens_there_has_to_be_redis(opened: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as one:
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                one.recv(65536)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ProtocolError, match=r"speaks otherwise .*: is that Redis or Valkey"):
            opened(f"redis://127.0.0.1:{listener.getsockname()[1]}").run_of("k", 5.0)
        thread.join()


def test_an_answer_that_comes_byte_by_byte_has_the_limit_in_total(redis_server: RedisServer, opened: Opened) -> None:
    with Proxy(("127.0.0.1", redis_server.port)) as proxy:
        link = opened(f"redis://127.0.0.1:{proxy.port}")
        assert link.call(ECHO, ["k"], ["x"], 5.0) == [b"k", b"x"]
        proxy.throttle(20_000, direction=Direction.ANSWER)
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.1 s"):
            link.call(ECHO, ["k"], ["x" * 100_000], 0.1)
        proxy.pass_through()
        assert link.call(ECHO, ["k"], ["x" * 100_000], 5.0) == [b"k", b"x" * 100_000]


def test_a_forked_child_leaves_the_parents_socket_alone(link: Link) -> None:
    assert link.call(COUNT, ["n"], [1], 5.0) == 1
    mine = link.command("CLIENT", "ID", limit=5.0)
    pid = os.fork()
    if pid == 0:
        try:
            other = link.command("CLIENT", "ID", limit=5.0)
            os._exit(0 if other != mine and link.call(COUNT, ["n"], [1], 5.0) == 2 else 1)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == 0
    assert link.command("CLIENT", "ID", limit=5.0) == mine
    assert link.call(COUNT, ["n"], [1], 5.0) == 3


def test_tls_is_spoken_to_who_proves_itself(tmp_path: Path, opened: Opened) -> None:
    pem = certificate(tmp_path)
    with TlsServer(tmp_path / "redis", pem) as server:
        link = opened(f"{server.url}?ssl_ca_certs={pem}")
        big = b"x" * 300_000
        assert link.call(ECHO, ["k"], [big], 5.0) == [b"k", big]
        assert opened(f"{server.url}?ssl_cert_reqs=none").call(COUNT, ["n"], [1], 5.0) == 1
        with pytest.raises(ConnectionError, match=r"no secure connection .*CERTIFICATE_VERIFY_FAILED"):
            opened(server.url).run_of("k", 5.0)
        with pytest.raises(ConfigError, match=r"the TLS files of the broker URL cannot be used \(/nowhere\)"):
            opened(f"{server.url}?ssl_ca_certs=/nowhere").run_of("k", 5.0)
        server.freeze()
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.05 s"):
            link.call(ECHO, ["k"], ["x"], 0.05)
        server.thaw()
        assert link.call(ECHO, ["k"], ["x"], 5.0) == [b"k", b"x"]


def test_tls_at_a_server_without_it_is_asked_about(redis_server: RedisServer, opened: Opened) -> None:
    with pytest.raises(ConnectionError, match=r"is that server without TLS\? Then use redis://"):
        opened(f"rediss://127.0.0.1:{redis_server.port}").run_of("k", 0.5)


def test_a_connection_that_is_reset_names_its_server(opened: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            one = listener.accept()[0]
            one.recv(1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()

        thread = threading.Thread(target=reset)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(ConnectionError, match=rf"the connection to 127\.0\.0\.1:{port} broke: .*reset"):
            opened(f"redis://127.0.0.1:{port}").run_of("k", 5.0)
        thread.join()
