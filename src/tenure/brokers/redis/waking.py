"""How a take that found nothing sleeps until there may be something.

Each queue has a list in which a script puts one token when something has come, and says so on a channel of the same
name.  Who takes the token looks; a take that leaves jobs behind puts one in again, which wakes the next worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.brokers.redis import layout
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.node import Node
from tenure.brokers.redis.resp import pack


class Waking(Protocol):
    """Sleeps for one thread at a time; `interrupt` and `close` may be called from another one."""

    by_channel: bool
    """Whether it has to be said on the channels when something comes."""

    def sleep(self, queues: Sequence[str], seconds: float) -> str | None:
        """Sleep for so long at most; returns the queue that is to be asked first, if one has woken it.

        Raises ConnectionError, also where it was interrupted.
        """

    def interrupt(self) -> None:
        """End a sleep."""

    def close(self) -> None:
        """End for good."""


class ByToken:
    """Waits in the lists themselves, which have to be on one server: each token wakes one worker."""

    by_channel = False

    def __init__(self, link: Link) -> None:
        self._link = link

    def sleep(self, queues: Sequence[str], seconds: float) -> str | None:
        """See `Waking`."""
        keys = {layout.wake(queue): queue for queue in queues}
        key = self._link.pop_any(list(keys), seconds)
        return None if key is None else keys.get(key if isinstance(key, bytes) else str(key).encode())

    def interrupt(self) -> None:
        """See `Waking`."""
        self._link.interrupt()

    def close(self) -> None:
        """See `Waking`."""
        self._link.close()


class ByChannel:
    """Waits for what is said on the channels: for several queues of a cluster, whose lists are on several servers.

    Each worker is woken by each token, of which there is one at a time in a queue.
    """

    by_channel = True

    def __init__(self, link: Link, queues: Sequence[str], read_limit: float) -> None:
        self._link = link
        self._channels = {layout.wake(queue): queue for queue in queues}
        self._read_limit = read_limit
        self._node: Node | None = None

    def sleep(self, queues: Sequence[str], seconds: float) -> str | None:
        """See `Waking`; the first one returns at once, for something may have come before it began to listen."""
        if self._node is None or self._node.closed:
            self._node = self._link.subscribe(list(self._channels), self._read_limit)
            return None
        said = self._node.receive(seconds)
        if said is None:
            self._look_whether_it_is_there(self._node)
            return None
        return self._channels.get(said[1]) if said[0] == b"message" else None

    def _look_whether_it_is_there(self, node: Node) -> None:
        node.send(pack("PING"), self._read_limit)
        if node.receive(self._read_limit) is None:
            node.close()
            raise ConnectionError(f"the server at {node.address} did not answer within {self._read_limit:g} s")

    def interrupt(self) -> None:
        """See `Waking`."""
        self._link.interrupt()

    def close(self) -> None:
        """See `Waking`."""
        self._link.close()
