"""The sites of our own brokers: where each is opened, broken and started again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.brokers.inprocess import MemoryConnection
from tenure.brokers.memory import MemoryBroker
from tenure.brokers.server import address_of
from tenure.faults import process
from tenure.testing import MovableClock
from tenure.testing.contract import Address, BrokerSite
from tenure.wire import encode
from tenure.wire.replies import Reply
from tests.stage import raw
from tests.stage.harness import Stage


class MemorySite(BrokerSite):
    """`memory://` under a name of its own; its clock is moved where others have to wait for a window."""

    def __init__(self) -> None:
        self._clock = MovableClock()
        self._name = secrets.token_hex(8)

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a broker that shares its jobs with the others of this site."""
        return MemoryBroker(self._name, clock=self._clock)

    def kill(self) -> bool:
        """A process that is killed takes its jobs along: the next one begins with none."""
        self._name = secrets.token_hex(8)
        return True

    def restart(self) -> None:
        """The next broker is opened in a new process, as it were."""

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by a line of the protocol, which takes any bytes for a body."""
        connection = MemoryConnection(
            MemoryBroker(self._name, clock=self._clock).server, encode.hello(raw.new_id(), "producer", "")
        )
        replies: list[Reply] = []
        connection.exchange(raw.add_line(raw.new_id(), data, queue), 1, 5.0, replies)
        connection.close()
        return replies[0].line.startswith(b"ok ")

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self._clock.move(seconds)


class ServerSite(BrokerSite):
    """`tenure server` as a process of its own, with short windows."""

    key_window = 2.0
    result_ttl = 6.0

    def __init__(self, folder: Path) -> None:
        self._stage = Stage(folder)
        self._start("127.0.0.1:0")
        where = address_of(self._stage.url)
        self.addresses = [(where.host, where.port)]

    def _start(self, listen: str) -> None:
        options = ("--key-window", f"{self.key_window}s", "--result-ttl", f"{self.result_ttl}s")
        self._stage.start_server(listen, *options)

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a client of the server."""
        host, port = (through or {}).get(self.addresses[0], self.addresses[0])
        return connect(f"tenure://{host}:{port}")

    def kill(self) -> bool:
        """End the server with SIGKILL."""
        process.kill(self._stage.server.pid)
        process.wait_gone(self._stage.server.pid)
        return True

    def restart(self) -> None:
        """Start it on the same file and port."""
        host, port = self.addresses[0]
        self._start(f"{host}:{port}")

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by a line of the protocol, which takes any bytes for a body."""
        with raw.RawClient(self._stage.url) as client:
            return client.ask(raw.add_line(raw.new_id(), data, queue)).startswith(b"ok ")

    def close(self) -> None:
        """End it."""
        self._stage.close()
