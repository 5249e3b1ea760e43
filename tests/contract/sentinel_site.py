"""Where a Redis that a Sentinel watches is opened, broken and started again for the contract."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.faults import Proxy
from tenure.testing.contract import Address, BrokerSite
from tests.contract.redis_site import inject_garbage
from tests.stage.redis_servers import RedisServer, SentinelServer

SERVICE = "jobs"
PATIENT = 600.0
"""Seconds for which the Sentinel bears a silent primary: the contract breaks connections, and nobody is promoted."""


class SentinelSite(BrokerSite):
    """A primary and a Sentinel, which names the primary's proxy to its clients, with short windows."""

    key_window = 2.0
    result_ttl = 6.0

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack:
            self._primary = stack.enter_context(RedisServer(folder / "primary"))
            named = stack.enter_context(Proxy(("127.0.0.1", self._primary.port)))
            self._sentinel = stack.enter_context(
                SentinelServer(folder / "sentinel", SERVICE, named.port, quorum=1, down_after=PATIENT)
            )
            self._door = stack.enter_context(Proxy(("127.0.0.1", self._sentinel.port)))
            self.proxies = [named, self._door]
            self._stack = stack.pop_all()

    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a client that finds the primary by the Sentinel, both through their proxies."""
        url = f"redis+sentinel://127.0.0.1:{self._door.port}/{SERVICE}"
        return connect(url, key_window=self.key_window, result_ttl=self.result_ttl)

    def kill(self) -> bool:
        """End both with SIGKILL."""
        self._primary.kill()
        self._sentinel.kill()
        return True

    def restart(self) -> None:
        """Start both on the same data and ports."""
        self._primary.restart()
        self._sentinel.restart()

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Add it by the script itself."""
        return inject_garbage(self._primary, queue, data)

    def close(self) -> None:
        """End them."""
        self._stack.close()
