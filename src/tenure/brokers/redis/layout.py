"""Names of keys; what is behind each of them stands at the head of `lua/prelude.lua`."""

from __future__ import annotations

from functools import lru_cache

QUEUES = b"tenure:queues"
"""A set of the names of all queues."""


@lru_cache(maxsize=4096)
def base(queue: str) -> bytes:
    """Return a queue's own key, with which all its other keys begin.

    The name stands in braces, which Redis Cluster takes the slot by, so it must not hold any.

    >>> base("mails {eu}")
    b'tenure:{mails %7Beu%7D}'
    """
    name = queue.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return b"tenure:{%b}" % name.encode()


def wake(queue: str) -> bytes:
    """Return the key of the list in which a token stands while there may be something to take."""
    return base(queue) + b":wake"
