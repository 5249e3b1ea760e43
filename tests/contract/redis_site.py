"""Where Redis is opened, broken and started again for the contract."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.brokers.redis.layout import QUEUES, base
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.scripts import ADD
from tenure.ids import new_id
from tenure.message import Message
from tenure.testing.contract import Address, BrokerSite
from tests.stage.redis_servers import RedisServer


class RedisSite(BrokerSite):
    """A private Redis server that writes everything to its disk before it answers, with short windows."""

    key_window = 2.0
    result_ttl = 6.0

    def __init__(self, folder: Path) -> None:
        self._server = RedisServer(folder)
        self.addresses = [("127.0.0.1", self._server.port)]

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a client of the server."""
        host, port = (through or {}).get(self.addresses[0], self.addresses[0])
        return connect(f"redis://{host}:{port}", key_window=self.key_window, result_ttl=self.result_ttl)

    def kill(self) -> bool:
        """End the server with SIGKILL."""
        self._server.kill()
        return True

    def restart(self) -> None:
        """Start it on the same data and port."""
        self._server.restart()

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by the script itself, which takes any bytes for a body."""
        head = pack_head(Message(new_id(), "garbage", b"", 0, b"g" * 16))
        self._server.command("SADD", QUEUES, queue)
        answer: list[object] = self._server.command("EVAL", ADD.text, 1, base(queue), new_id(), head, data)
        return answer[0] in (1, 2)

    def close(self) -> None:
        """End it."""
        self._server.destroy()
