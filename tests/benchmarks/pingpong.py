"""P: what a round trip costs here at the least, in blocking Python over TCP with lines of the same length.

As a program, `python -m tests.benchmarks.pingpong ANSWER_LENGTH`, it is the other end: it prints its port, serves one
connection and ends with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.processes import ROOT, ended


class PingPong:
    """One connection to the other end, the process `pid`; `request` is the line that is sent."""

    def __init__(self, port: int, request: bytes, pid: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._socket.setblocking(True)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._pid = pid

    def rate(self, trips: int) -> float:
        """Make so many round trips, one after the other, and return how many a second they were."""
        send, recv, request = self._socket.sendall, self._socket.recv, self._request
        began_at = time.perf_counter()
        for _ in range(trips):
            send(request)
            recv(65536)
        return trips / (time.perf_counter() - began_at)

    def rate_on_one_core(self, trips: int) -> float | None:
        """The same with both ends on one core; None where a process cannot be held to one (not on Linux).

        Left alone, the scheduler has both ends on one core at one time and on two at another, and the rate jumps.
        """
        if sys.platform != "linux":
            return None
        cores = os.sched_getaffinity(0)
        try:
            for pid in (0, self._pid):
                os.sched_setaffinity(pid, {max(cores)})
            return self.rate(trips)
        finally:
            for pid in (0, self._pid):
                os.sched_setaffinity(pid, cores)

    def close(self) -> None:
        """Close the connection, which ends the other end."""
        self._socket.close()


@contextmanager
def ping_pong(request: bytes, answer: bytes) -> Iterator[PingPong]:
    """Start the other end and connect to it; both lines end with a newline, as the protocol's do."""
    command = [sys.executable, "-m", "tests.benchmarks.pingpong", str(len(answer))]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with ended(process):
        assert process.stdout is not None
        pair = PingPong(int(process.stdout.readline()), request, process.pid)
        try:
            yield pair
        finally:
            pair.close()


def serve(answer: bytes) -> None:
    """Answer each line with this one until the other side closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while data := connection.recv(65536):
            if data.endswith(b"\n"):
                connection.sendall(answer)


if __name__ == "__main__":
    serve(b"x" * (int(sys.argv[1]) - 1) + b"\n")
