"""The client of our own server: adds over a pool of connections, and what opens the other kinds of line.

It has no threads of its own.  Every connection says `hello` with a session: adds with one of this process, a worker
with its own, a keeper with its own.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from tenure.broker import Added, Capabilities, ProducerCounts
from tenure.brokers.adding import AddCall, add_one
from tenure.brokers.bounded import CONNECT_LIMIT, READ_LIMIT
from tenure.brokers.connection import Address, Connection
from tenure.brokers.forks import tell_of_forks
from tenure.brokers.leasing import Line, ServerConsumer, ServerKeeper
from tenure.brokers.operating import PooledExchange, ServerAdmin
from tenure.brokers.options import check_adding, refuse_unknown_options
from tenure.brokers.pipe import Pipe
from tenure.brokers.pool import Pool
from tenure.brokers.repeating import Counts
from tenure.brokers.results import ServerResults
from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigError
from tenure.message import Message
from tenure.names import checked
from tenure.wire import encode
from tenure.wire.commands import DEFAULT_PORT, MAX_BATCH_LINES, MAX_BODY, MAX_LINE, Role
from tenure.wire.words import quote

MAX_SKEW = 5.0
"""Seconds by which a worker's wall clock may differ from the server's before it is told."""

_TAKE_NUMBERS = 100
"""Bytes of a take beside its queues, at most."""


class ServerBroker:
    """Speaks to one Tenure server; safe to use from several threads, and after a fork.

    `pool_size` is the number of connections for adds.  `add_timeout` (seconds, at most 300) bounds an `add` whatever
    the server does.  `read_limit` is the seconds beyond what was asked for after which silence is a broken
    connection.  `name` is a label for the record.  `clock` and `roll` (0..1, the jitter) can be passed in by tests.
    """

    def __init__(
        self,
        address: Address,
        *,
        pool_size: int = 8,
        add_timeout: float = 5.0,
        connect_limit: float = CONNECT_LIMIT,
        read_limit: float = READ_LIMIT,
        name: str = "",
        clock: Clock | None = None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        check_adding(add_timeout, pool_size)
        self.address = address
        self.add_timeout = add_timeout
        self.read_limit = read_limit
        self.max_body = MAX_BODY
        self.clock: Clock = clock or SystemClock()
        self.roll = roll
        self.closing = threading.Event()
        self._connect_limit = connect_limit
        self._name = name
        self._told_of_skew = False
        self.pool = Pool(self._open_producer, pool_size, self.clock)
        self._results = ServerResults(
            self.pool,
            self._open_pipe,
            clock=self.clock,
            roll=roll,
            closing=self.closing,
            patience=add_timeout,
            read_limit=read_limit,
        )
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Begin anew in a child: its own session, its own counts."""
        self.tally = Counts()
        self._session = secrets.token_hex(16)

    @property
    def capabilities(self) -> Capabilities:
        """Flags and limits; `max_body` is the default until the server has been spoken to."""
        return Capabilities(max_body=self.max_body, max_batch=MAX_BATCH_LINES)

    def add(self, messages: Sequence[Message]) -> list[Added]:
        """Store the messages and return once they are on disk; one answer a message, in order.

        A message that is refused has its error in its answer and does not stop the others.  Raises BrokerUnavailable
        when the server did not confirm within `add_timeout`.
        """
        if len(messages) == 1:
            return add_one(self, messages[0])
        return AddCall(self, messages).run()

    def counts(self) -> ProducerCounts:
        """What the adds of this process came to so far."""
        return self.tally.now()

    def consumer(self, queues: Sequence[str], *, session: str, name: str, visibility_timeout: float) -> ServerConsumer:
        """Return the two lines of a worker process; `session` is 32 hexadecimal digits, new for each process.

        Raises ConfigError for queues that cannot be asked for.
        """
        size = sum(len(quote(checked("queue", queue))) + 1 for queue in queues)
        if not 0 < size < MAX_LINE - _TAKE_NUMBERS:
            raise ConfigError(
                f"{len(queues)} queues, whose names have {size} bytes, do not make a line: name some, or fewer"
            )
        hello = encode.hello(session, "worker", name)
        return ServerConsumer(
            Line(lambda: self._open_worker(hello), self.clock, self.read_limit),
            self._line(session, "worker", name),
            queues,
            visibility_timeout,
        )

    def keeper(self) -> ServerKeeper:
        """Return what extends and ends leases, over a connection and a session of its own."""
        return ServerKeeper(self._line(secrets.token_hex(16), "keeper", self._name))

    def admin(self) -> ServerAdmin:
        """Return the operator's verbs, over the connections of the pool."""
        return ServerAdmin(PooledExchange(self.pool, self.add_timeout, self.read_limit))

    def results(self) -> ServerResults:
        """Return what knows of this process's jobs; all callers wait over one connection, beside those of the pool."""
        return self._results

    def close(self) -> None:
        """Close the connections; an add that waits raises BrokerUnavailable soon."""
        self.closing.set()
        self.pool.close()
        self._results.close()

    def learn(self, limit: float) -> None:
        """Connect once, so that `max_body` is the server's and not the default."""
        self.pool.give_back(self.pool.lend(limit))

    def _line(self, session: str, role: Role, name: str) -> Line:
        hello = encode.hello(session, role, name)
        return Line(lambda: self._open(hello, self._connect_limit), self.clock, self.read_limit)

    def _open_producer(self, limit: float) -> Connection:
        return self._open(encode.hello(self._session, "producer", self._name), min(limit, self._connect_limit))

    def _open_pipe(self, limit: float) -> Pipe:
        hello = encode.hello(self._session, "producer", self._name)
        return Pipe(self.address, hello, min(limit, self._connect_limit))

    def _open_worker(self, hello: bytes) -> Connection:
        connection = self._open(hello, self._connect_limit)
        ahead = self.clock.wall() - connection.welcome.time / 1000
        if abs(ahead) > MAX_SKEW and not self._told_of_skew:
            self._told_of_skew = True
            import logging  # a process that only adds jobs does not load it

            logging.getLogger("tenure.worker").warning(
                "the clock of this machine is %.0f s %s the server's; due times and leases go by the server's",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
            )
        return connection

    def _open(self, hello: bytes, limit: float) -> Connection:
        connection = Connection(self.address, hello, limit)
        self.max_body = connection.welcome.body
        return connection


def from_url(url: str, **settings: Any) -> ServerBroker:
    """Return the broker for `tenure://HOST[:PORT]` or `tenure+unix:///PATH`; raises ConfigError."""
    refuse_unknown_options(url, ServerBroker, settings)
    return ServerBroker(address_of(url), **settings)


def address_of(url: str) -> Address:
    """Return where the server of a broker URL listens; raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"broker URL {url!r}: {error}") from None
    if parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(f"broker URL {url!r} has more than a host and a port, or a path: leave the rest out")
    return _unix(url, parts) if parts.scheme == "tenure+unix" else _tcp(url, parts, port)


def _unix(url: str, parts: SplitResult) -> Address:
    if parts.netloc or len(parts.path) < 2:
        raise ConfigError(f"broker URL {url!r} names no socket: write tenure+unix:///path/to/socket")
    return Address(path=unquote(parts.path))


def _tcp(url: str, parts: SplitResult, port: int | None) -> Address:
    if not parts.hostname or parts.path not in ("", "/"):
        raise ConfigError(f"broker URL {url!r} is not tenure://HOST[:PORT]")
    return Address(parts.hostname, port or DEFAULT_PORT)
