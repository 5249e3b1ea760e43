"""Where a Redis cluster is opened, broken and started again for the contract."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hiredis import ReplyError

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.brokers.redis.layout import QUEUES, base
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import ADD
from tenure.faults import Proxy
from tenure.ids import new_id
from tenure.message import Message
from tenure.testing.contract import Address, BrokerSite
from tests.stage.redis_servers import RedisServer, clustered, until


class ClusterSite(BrokerSite):
    """Three nodes that share the queues, with short windows; each is told to its clients by the port of its proxy."""

    key_window = 2.0
    result_ttl = 6.0

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._cluster = self._stack.enter_context(clustered(folder))
        self.proxies = [self._stack.enter_context(Proxy(("127.0.0.1", node.port))) for node in self._cluster.nodes]
        self._announce()

    def _announce(self) -> None:
        """Have every node name the proxies, and wait until all know it."""
        for node, proxy in zip(self._cluster.nodes, self.proxies, strict=True):
            node.command("CONFIG", "SET", "cluster-announce-port", proxy.port)
        until(lambda: all(map(self._names_proxies, self._cluster.nodes)), "all nodes name the proxies")

    def _names_proxies(self, node: RedisServer) -> bool:
        named = {owner[1] for _, _, owner, *_ in node.command("CLUSTER", "SLOTS")}
        return named == {proxy.port for proxy in self.proxies}

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a client of the cluster, by its proxies."""
        places = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        return connect(f"redis+cluster://{places}", key_window=self.key_window, result_ttl=self.result_ttl)

    def kill(self) -> bool:
        """End all nodes with SIGKILL."""
        for node in self._cluster.nodes:
            node.kill()
        return True

    def restart(self) -> None:
        """Start them on the same data and ports."""
        for node in self._cluster.nodes:
            node.restart()
        self._announce()
        self._cluster.wait_ok()

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by the script itself, which takes any bytes for a body."""
        head = pack_head(Message(new_id(), "garbage", b"", 0, b"g" * 16))
        self._ask("SADD", QUEUES, queue)
        answer: list[object] = self._ask("EVAL", ADD.text, 1, base(queue), new_id(), head, data)
        return answer[0] in (1, 2)

    def _ask(self, *words: Word) -> Any:
        """Return the reply of the node that the command is for; the others say that they are not."""
        for node in self._cluster.nodes:
            with suppress(ReplyError):
                return node.command(*words)
        raise AssertionError(f"no node takes {words[0]!r}")

    def close(self) -> None:
        """End them."""
        self._stack.close()
