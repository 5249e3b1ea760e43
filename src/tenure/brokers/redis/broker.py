"""The broker over Redis or Valkey: adds over a pool of links, and what opens the other kinds of line."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tenure.broker import Added, Capabilities, ProducerCounts
from tenure.brokers.bounded import CONNECT_LIMIT, READ_LIMIT
from tenure.brokers.forks import tell_of_forks
from tenure.brokers.options import check_adding, refuse_unknown_options
from tenure.brokers.pool import Pool
from tenure.brokers.redis.adding import MAX_CALL, AddCall, add_one
from tenure.brokers.redis.address import Address, parse
from tenure.brokers.redis.admin import RedisAdmin
from tenure.brokers.redis.consumer import RedisConsumer
from tenure.brokers.redis.ends import Ends
from tenure.brokers.redis.keeper import RedisKeeper
from tenure.brokers.redis.line import OwnLine, PooledLine
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.results import RedisResults
from tenure.brokers.redis.settling import Retention
from tenure.brokers.redis.waking import ByChannel, ByToken
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.brokers.repeating import Counts
from tenure.clock import Clock, SystemClock
from tenure.errors import ConfigError
from tenure.message import Message
from tenure.names import checked
from tenure.retry import reconnect_delay
from tenure.wire.commands import MAX_BODY


class RedisBroker:
    """Speaks to a Redis server, its primary or a cluster; safe to use from several threads, and after a fork.

    `pool_size` is the number of connections for adds.  `add_timeout` (seconds, at most 300) bounds an `add` whatever
    the server does.  `read_limit` is the seconds beyond what was asked for after which silence is a broken
    connection.  `result_ttl` and `key_window` are the seconds for which jobs that this process settles keep their
    results and keys.  `name` is a label.  `clock` and `roll` (0..1, the jitter) can be passed in by tests.
    """

    max_body = MAX_BODY

    def __init__(
        self,
        address: Address,
        *,
        pool_size: int = 8,
        add_timeout: float = 5.0,
        connect_limit: float = CONNECT_LIMIT,
        read_limit: float = READ_LIMIT,
        result_ttl: float = 3_600.0,
        key_window: float = 86_400.0,
        name: str = "",
        clock: Clock | None = None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        check_adding(add_timeout, pool_size)
        self.address = address
        self.add_timeout = add_timeout
        self.read_limit = read_limit
        self.clock: Clock = clock or SystemClock()
        self.roll = roll
        self.closing = threading.Event()
        self._connect_limit = connect_limit
        self._name = name
        self._retention = Retention(round(result_ttl * 1000), round(key_window * 1000))
        self.pool: Pool[Link] = Pool(lambda _: self._link(), pool_size, self.clock)
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Begin anew in a child: its own counts, its own connections."""
        self.tally = Counts()
        self.registered: set[str] = set()
        self._looking = PooledLine(self.pool, self.clock, self.read_limit, self.add_timeout, self.closing)
        self._where = Whereabouts(self._looking)
        self.note = self._where.note
        self._results = RedisResults(
            self._looking,
            self._where,
            Ends(self._link, self.clock, self.read_limit, self.roll, self.closing),
            clock=self.clock,
            roll=self.roll,
            closing=self.closing,
            patience=self.add_timeout,
            retention=self._retention,
        )

    @property
    def capabilities(self) -> Capabilities:
        """Flags and limits; the order of jobs, and whose an explicit key is, hold within each queue."""
        return Capabilities(max_body=MAX_BODY, max_batch=MAX_CALL, keys_across_queues=False)

    def add(self, messages: Sequence[Message]) -> list[Added]:
        """Store the messages and return once they are safe; one answer a message, in order.

        A message that is refused has its error in its answer and does not stop the others.  Raises BrokerUnavailable
        when the server did not confirm within `add_timeout`.
        """
        if len(messages) == 1:
            return add_one(self, messages[0])
        return AddCall(self, messages).run()

    def counts(self) -> ProducerCounts:
        """What the adds of this process came to so far."""
        return self.tally.now()

    def consumer(self, queues: Sequence[str], *, session: str, name: str, visibility_timeout: float) -> RedisConsumer:
        """Return the two lines of a worker process; `session` is 32 hexadecimal digits, new for each process.

        Raises ConfigError for queues that cannot be asked for.
        """
        for queue in queues:
            checked("queue", queue)
        if not queues:
            raise ConfigError("name one queue at least")
        settling = OwnLine(self._link(), self.clock, self.read_limit)
        taking = OwnLine(self._link(), self.clock, self.read_limit, beside=settling)
        apart = self.address.kind == "cluster" and len(queues) > 1
        waking = ByChannel(self._link(), queues, self.read_limit) if apart else ByToken(taking.link)
        return RedisConsumer(
            taking,
            settling,
            waking,
            queues,
            session=session,
            name=name,
            visibility_timeout=visibility_timeout,
            retention=self._retention,
            clock=self.clock,
        )

    def keeper(self) -> RedisKeeper:
        """Return what extends and ends leases, over a connection of its own."""
        # Its first line comes when a job has run for a while.  Had the server stood still meanwhile, and were this the
        # first line that it reads, nobody else could tell any more; so it counts all of that time as wanted in vain.
        return RedisKeeper(OwnLine(self._link(), self.clock, self.read_limit, first="0"), self._retention)

    def admin(self) -> RedisAdmin:
        """Return the operator's verbs."""
        return RedisAdmin(
            self._looking,
            self._where,
            self._retention,
            lambda n: self.clock.wait(self.closing, reconnect_delay(n, self.roll())),
        )

    def results(self) -> RedisResults:
        """Return what knows of jobs."""
        return self._results

    def close(self) -> None:
        """Close the connections; an add that waits raises BrokerUnavailable soon."""
        self.closing.set()
        self.pool.close()
        self._results.close()

    def _link(self) -> Link:
        return Link(
            self.address, name=self._name or "tenure", connect_limit=self._connect_limit, read_limit=self.read_limit
        )


def from_url(url: str, **settings: Any) -> RedisBroker:
    """Return the broker for `redis://`, `rediss://`, `valkey://`, `redis+sentinel://` or `redis+cluster://`.

    Raises ConfigError.
    """
    refuse_unknown_options(url, RedisBroker, settings)
    return RedisBroker(parse(url), **settings)
