"""What the contract needs to know of a broker that is held to it: how to open it, break it and start it again."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from tenure.broker import Broker, Capabilities
from tenure.faults import Proxy

Address = tuple[str, int]
"""A host and a port."""


class BrokerSite(ABC):
    """A broker under test, with the server behind it; write one for yours and return it from a fixture `site`.

    Only `broker` has to be written. The other members say what else can be done: as they are here, the broker has no
    network and its server cannot be killed. One site may serve many tests: each of them has queues of its own.
    """

    addresses: Sequence[Address] = ()
    """Where the broker's servers listen; the contract puts a proxy that breaks connections before each.  Empty for a
    broker without a network."""
    proxies: Sequence[Proxy] = ()
    """Proxies of the site's own that all its clients go through, in place of `addresses`: for servers that tell their
    clients of each other, as those of a cluster do, and have to name the proxies."""
    key_window: float = 86_400.0
    """Seconds for which this broker holds a key after its job is done. The contract waits for it: give 2 to 3."""
    result_ttl: float = 3_600.0
    """Seconds for which a result can be had. The contract waits for it: give 5 to 8."""

    @abstractmethod
    def broker(self, through: Mapping[Address, Address] | None = None) -> Broker:
        """Return a new broker, as another process would open it; the contract closes it.

        With `through` it speaks to the second address wherever it would speak to the first; it is empty where the site
        has proxies of its own.
        """

    @property
    def capabilities(self) -> Capabilities:
        """What the broker says of itself."""
        broker = self.broker()
        try:
            return broker.capabilities
        finally:
            broker.close()

    def kill(self) -> bool:
        """End the broker's server at once, as `kill -9` does; False where it has none that can be killed."""
        return False

    def restart(self) -> None:
        """Start the server again after `kill`, with the same data and at the same address, and return once it is up."""
        raise NotImplementedError("a site whose kill() returns True has to write restart() too")

    def inject_garbage(self, queue: str, data: bytes) -> bool:
        """Put `data` into the queue in the place of a job's body, past all checks; False where that cannot be done."""
        return False

    def pass_time(self, seconds: float) -> None:
        """Let so much of the broker's time pass; a broker whose clock can be moved need not wait."""
        time.sleep(seconds)
