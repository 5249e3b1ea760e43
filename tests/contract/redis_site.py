"""Where Redis and what is like it are opened, broken and started again for the contract."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.brokers.redis.layout import QUEUES, base
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.scripts import ADD
from tenure.ids import new_id
from tenure.message import Message
from tenure.testing.contract import (
    AddingContract,
    Address,
    BrokerSite,
    NetworkContract,
    RestartContract,
    ResultContract,
    TakingContract,
)
from tests.stage.redis_servers import RedisServer


class WayContract(AddingContract, TakingContract, ResultContract, NetworkContract, RestartContract):
    """What depends on the way to the server: large and many jobs, waits, what it tells of its own accord, faults.

    The other parts are about the queue's rules, which are the same scripts whichever way leads there.
    """


class RedisSite(BrokerSite):
    """A private server that writes everything to its disk before it answers, with short windows."""

    key_window = 2.0
    result_ttl = 6.0

    def __init__(self, server: RedisServer, options: str = "") -> None:
        """`options` are what its clients write behind the URL."""
        self._server = server
        self._options = options
        self.addresses = [("127.0.0.1", server.port)]

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a client of the server."""
        own = self.addresses[0]
        host, port = (through or {}).get(own, own)
        url = self._server.url.replace(f"{own[0]}:{own[1]}", f"{host}:{port}")
        return connect(url + self._options, key_window=self.key_window, result_ttl=self.result_ttl)

    def kill(self) -> bool:
        """End the server with SIGKILL."""
        self._server.kill()
        return True

    def restart(self) -> None:
        """Start it on the same data and port."""
        self._server.restart()

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by the script itself."""
        return inject_garbage(self._server, queue, data)

    def close(self) -> None:
        """End it."""
        self._server.destroy()


def inject_garbage(server: RedisServer, queue: str, data: bytes) -> bool:
    """Add a job by the script itself, which takes any bytes for a body."""
    head = pack_head(Message(new_id(), "garbage", b"", 0, b"g" * 16))
    server.command("SADD", QUEUES, queue)
    answer: list[object] = server.command("EVAL", ADD.text, 1, base(queue), new_id(), head, data)
    return answer[0] in (1, 2)
