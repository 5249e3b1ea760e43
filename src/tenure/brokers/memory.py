"""`memory://`: the queue in this process, over a database in memory; see `inprocess`."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from tenure.broker import Added, Capabilities, ProducerCounts
from tenure.brokers.adding import AddCall, add_one
from tenure.brokers.connection import Connection
from tenure.brokers.forks import tell_of_forks
from tenure.brokers.inprocess import MemoryConnection, MemoryLine, MemoryResults, MemoryServer
from tenure.brokers.leasing import Line, ServerConsumer, ServerKeeper
from tenure.brokers.operating import PooledExchange, ServerAdmin
from tenure.brokers.options import refuse_unknown_options
from tenure.brokers.pool import Pool
from tenure.brokers.repeating import Counts
from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigError
from tenure.message import Message
from tenure.names import checked
from tenure.wire import encode
from tenure.wire.commands import MAX_BATCH_LINES, MAX_BODY, Role


class MemoryClock(SystemClock):
    """The machine's clocks, of which only the calendar heeds a library that freezes time, such as freezegun.

    Leases and waits go by clocks that run on, so that nothing waits for ever while the calendar stands.
    """

    @staticmethod
    def wall() -> float:
        """Seconds since the epoch."""
        return time.time()


class MemoryBroker:
    """Holds the jobs in this process, for tests and for trying things out; all of them are gone with the process.

    `name`: brokers of one name share their jobs, within the process; without a name it has its own, which are gone
    once it is closed.  A forked child begins with none.  `clock` and `roll` (0..1, the jitter) can be passed in.
    """

    def __init__(
        self,
        name: str = "",
        *,
        pool_size: int = 8,
        add_timeout: float = 5.0,
        clock: Clock | None = None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.clock: Clock = clock or MemoryClock()
        self.roll = roll
        self.add_timeout = add_timeout
        self.read_limit = 1.0
        self.max_body = MAX_BODY
        self.closing = threading.Event()
        self.pool = Pool(self._open_producer, pool_size, self.clock)
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Begin anew in a child: its own jobs, session and counts."""
        self.server = _named(self.name, self.clock) if self.name else MemoryServer(self.clock)
        self.tally = Counts()
        self._session = secrets.token_hex(16)

    @property
    def capabilities(self) -> Capabilities:
        """Flags and limits: those of a server with its defaults, but for its reach."""
        return Capabilities(
            max_body=self.max_body,
            max_batch=MAX_BATCH_LINES,
            one_process=True,
            survives_restart=False,
            renews_leases=False,
        )

    def add(self, messages: Sequence[Message]) -> list[Added]:
        """Store the messages; one answer a message, in order."""
        if len(messages) == 1:
            return add_one(self, messages[0])
        return AddCall(self, messages).run()

    def counts(self) -> ProducerCounts:
        """What the adds over this broker came to so far."""
        return self.tally.now()

    def consumer(self, queues: Sequence[str], *, session: str, name: str, visibility_timeout: float) -> ServerConsumer:
        """Return the two lines of a worker; `session` is 32 hexadecimal digits, new for each."""
        for queue in queues:
            checked("queue", queue)
        taking, settling = self._line(session, "worker", name), self._line(session, "worker", name)
        return ServerConsumer(taking, settling, queues, visibility_timeout)

    def keeper(self) -> ServerKeeper:
        """Return what extends and ends leases."""
        return ServerKeeper(self._line(secrets.token_hex(16), "keeper", ""))

    def results(self) -> MemoryResults:
        """Return what tells of jobs' ends."""
        return MemoryResults(lambda: self._open_producer(self.read_limit), self.clock)

    def admin(self) -> ServerAdmin:
        """Return the operator's verbs."""
        return ServerAdmin(PooledExchange(self.pool, self.add_timeout, self.read_limit))

    def close(self) -> None:
        """Close the connections; the jobs of a broker without a name are gone."""
        self.closing.set()
        self.pool.close()
        if not self.name:
            self.server.close()

    def learn(self, limit: float) -> None:
        """The limits are known: they are those of a server with its defaults."""

    def _line(self, session: str, role: Role, name: str) -> Line:
        hello = encode.hello(session, role, name)
        return MemoryLine(lambda: MemoryConnection(self.server, hello), self.clock, self.read_limit)

    def _open_producer(self, limit: float) -> Connection:
        return MemoryConnection(self.server, encode.hello(self._session, "producer", ""))


_servers: dict[tuple[int, str], MemoryServer] = {}
_servers_lock = threading.Lock()


def _named(name: str, clock: Clock) -> MemoryServer:
    """The server of that name in this process: a child of a fork is another process."""
    place = os.getpid(), name
    with _servers_lock:
        if place not in _servers:
            _servers[place] = MemoryServer(clock)
        return _servers[place]


def from_url(url: str, **settings: object) -> MemoryBroker:
    """Return the broker for `memory://` or `memory://NAME`; raises ConfigError."""
    refuse_unknown_options(url, MemoryBroker, settings)
    parts = urlsplit(url)
    if parts.path or parts.query or parts.fragment:
        raise ConfigError(f"broker URL {url!r} is not memory:// or memory://NAME")
    return MemoryBroker(unquote(parts.netloc), **settings)  # type: ignore[arg-type]
