"""Answers over HTTP whether a worker lives and whether it can work: `tenure worker --health HOST:PORT`."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from tenure.broker import Keeper
from tenure.clock import Clock
from tenure.errors import ConfigError
from tenure.worker.heartbeat import Heartbeat
from tenure.worker.vitals import ProcessVitals, Vitals, answer

logger = logging.getLogger("tenure.worker")

LOOK_PERIOD = 0.25
"""Seconds between two looks at the processes, at most."""

_MOST_AT_ONCE = 32
_REQUEST_TIME = 2.0
"""Seconds that a client may be silent: who asks for the health has its whole request ready."""
_MAKING_ROOM = 1.0
"""Seconds in which one of those that are being answered has to be done, when there is room for no other."""


class Health:
    """Keeps what is known of a worker, and answers with it at an address; raises ConfigError when it cannot be had.

    `refresh` is called before each answer, in any thread, and may `see`.
    """

    def __init__(
        self, address: str, wanted: int, clock: Clock, refresh: Callable[[Health], None] = lambda health: None
    ) -> None:
        self._wanted = wanted
        self._clock = clock
        self._heartbeat: Heartbeat | None = None
        self._seen = Vitals(clock.boot(), wanted, ())
        self._refresh = refresh
        self._server = HealthServer(address, self._answer)
        self.url = self._server.url
        self._server.start()

    def ask(self, keeper: Keeper) -> None:
        """Ask the broker from now on whether it answers, over this line."""
        self._heartbeat = Heartbeat(keeper, self._clock)
        self._heartbeat.start()

    def see(self, processes: tuple[ProcessVitals, ...], *, keeping: bool, leaving: bool) -> None:
        """Take note of how the processes are."""
        answered_at, error = (0.0, "") if self._heartbeat is None else self._heartbeat.last
        self._seen = Vitals(self._clock.boot(), self._wanted, processes, answered_at, error, keeping, leaving)

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        self._refresh(self)
        return answer(path, self._seen, self._clock.boot())

    def close(self) -> None:
        """Answer no more."""
        self._server.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()


class HealthServer(ThreadingMixIn, TCPServer):
    """Answers requests in threads of its own; `answer` is called in any of them and returns a status and a body.

    A few dozen at once at most: where another comes, the one that has said nothing for the longest time is closed, so
    that idle connections hold up nobody.  Raises ConfigError when it cannot listen there.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, answer: Callable[[str], tuple[int, dict[str, Any]]]) -> None:
        self.answer = answer
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._silent: dict[socket, None] = {}  # that have not asked yet, the oldest first
        self._lock = threading.Lock()
        host, port = parse_address(address)
        self.address_family = AF_INET6 if ":" in host else AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(f"health cannot be answered at {address}: {error.strerror or error}") from None
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}"

    def start(self) -> None:
        """Answer from now on, until `close`."""
        threading.Thread(target=self.serve_forever, args=(0.1,), name="tenure-health", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        if not self._free.acquire(blocking=False):
            self._close_oldest()
            if not self._free.acquire(timeout=_MAKING_ROOM):
                self.shutdown_request(request)
                return
        with self._lock:
            self._silent[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def has_asked(self, request: socket) -> None:
        """Take note that a request has come whole, or will not come any more: it is not closed for another."""
        with self._lock:
            self._silent.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.has_asked(request)
        super().shutdown_request(request)

    def _close_oldest(self) -> None:
        with self._lock:  # as long as it is among the silent ones, its thread has not closed it
            if self._silent:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                with suppress(OSError):  # its client may have gone by itself
                    oldest.shutdown(SHUT_RDWR)  # which ends its thread's wait

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the worker."""
        logger.debug("a request for the health from %s was not answered", client_address)


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = _REQUEST_TIME

    def do_GET(self) -> None:
        """Answer."""
        self.server.has_asked(self.connection)
        status, body = self.server.answer(self.path)
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815  (the name that http.server looks for)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("health: " + format, *args)  # noqa: G003  (http.server's own format)


def parse_address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`; raises ConfigError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f"{text!r} is not HOST:PORT; write for example 127.0.0.1:7334, or 0.0.0.0:7334 for all")
    return host, int(port)
