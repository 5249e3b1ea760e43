"""An address that swallows whatever is sent to it, as a host behind a dead route does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def blackhole(host: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Give an address where connecting neither succeeds nor fails: its queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()
