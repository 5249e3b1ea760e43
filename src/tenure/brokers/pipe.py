"""A connection whose answers are read apart from the writing, by whichever thread comes to read."""

from __future__ import annotations

from tenure.brokers.bounded import CONNECT_LIMIT
from tenure.brokers.connection import Address, Connection
from tenure.wire.replies import Reply, ReplyReader

_CHUNK = 256 * 1024


class Pipe(Connection):
    """Lines go out and answers come in, each by one thread at a time, and not in step.

    A read whose time is over leaves it as it was: another thread may read on.
    """

    def __init__(self, address: Address, hello: bytes, limit: float = CONNECT_LIMIT) -> None:
        self._reader = ReplyReader()
        super().__init__(address, hello, limit)

    def kick(self, line: bytes) -> None:
        """Write one short line while another thread reads; raises OSError."""
        self._socket.sendall(line)

    def receive(self, limit: float) -> list[Reply]:
        """The answers that came within `limit` seconds, perhaps none; raises ConnectionError and closes."""
        try:
            self._set_limit(limit)
            got = self._recv(_CHUNK)
            if not got:
                raise ConnectionError(f"the server at {self.address} closed the connection")
            return self._reader.feed(got)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError as error:
            raise self._broken(error, limit) from None
