"""A program that parks takes: `python -m tests.benchmarks.parkers PORT COUNT QUEUE`.

It opens so many connections, each a session of its own with one take parked on the queue, and prints `parked`; it parks
each anew when its time is over, and says "done" of what it is given.  It ends with its input.
"""

from __future__ import annotations

import random
import secrets
import selectors
import socket
import sys

from tenure.wire import encode

LONGEST = 28.0
"""Seconds; the server cuts longer waits.  Each is between a third and the whole of it, so that they end apart."""


class Parker:
    """One connection with one parked take."""

    def __init__(self, port: int, queue: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._queue = queue
        self._number = 0
        self._read = b""
        self.socket.sendall(encode.hello(secrets.token_hex(16), "worker", "parker"))
        self.socket.recv(65536)
        self.park()

    def park(self, before: bytes = b"") -> None:
        """Write the next take, behind these lines."""
        self._number += 1
        wait = random.uniform(LONGEST / 3, LONGEST)
        self.socket.sendall(before + encode.take(self._number, 1, wait, 30.0, [self._queue]))

    def read(self) -> None:
        """Read what has come; a whole answer to the take is followed by the next one."""
        self._read += self.socket.recv(65536)
        # An answer to the "done" before it is one short line; the answer to a take is `jobs COUNT BYTES` and BYTES.
        while b"\n" in self._read:
            line, _, rest = self._read.partition(b"\n")
            if not line.startswith(b"jobs"):
                self._read = rest
                continue
            _, count, size = line.split()
            if len(rest) < int(size):
                return
            self._read = rest[int(size) :]
            words = rest.split(maxsplit=3)
            self.park(b"done %b:%b\n" % (words[1], words[2]) if int(count) else b"")


def main(port: int, count: int, queue: str) -> None:
    """Park, and park again, until there is no more input."""
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            parker = Parker(port, queue)
            selector.register(parker.socket, selectors.EVENT_READ, parker)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("parked", flush=True)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return
                key.data.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
