"""The operator's verbs over our server's protocol."""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

from tenure.broker import CancelAnswer, QueueVerb
from tenure.brokers.connection import Connection
from tenure.brokers.pool import Pool
from tenure.errors import BrokerUnavailable, JobNotFound, ProtocolError, QueueNotFound, ServerError
from tenure.names import shown
from tenure.wire import encode
from tenure.wire.replies import Reply, error_of

RECOUNT_LIMIT = 60.0
"""Seconds that a recount of all rows may take; every other answer is made at once."""


class Exchange(Protocol):
    """What lines are sent over."""

    def exchange(self, data: bytes, answers: int, wait: float = 0.0) -> list[Reply]:
        """Write `data` and return the answers, which may take `wait` seconds to make; raises ConnectionError."""


class PooledExchange:
    """Exchanges over the connections that a process has for its adds, each lent for one.

    `patience` is the seconds to wait for a connection, `read_limit` those beyond what was asked for that an answer may
    take.
    """

    def __init__(self, pool: Pool[Connection], patience: float, read_limit: float) -> None:
        self._pool = pool
        self._patience = patience
        self._read_limit = read_limit

    def exchange(self, data: bytes, answers: int, wait: float = 0.0) -> list[Reply]:
        """Write `data` and return the answers; raises ConnectionError."""
        connection = self._pool.lend(self._patience)
        replies: list[Reply] = []
        try:
            connection.exchange(data, answers, wait + self._read_limit, replies)
        except BaseException:
            self._pool.give_up(connection)
            raise
        self._pool.give_back(connection)
        return replies


class ServerAdmin:
    """Looks at the record and the dead list, and moves jobs; every verb may be repeated.

    Raises BrokerUnavailable when the server cannot be reached, JobNotFound for an id that it does not know.
    """

    def __init__(self, line: Exchange) -> None:
        self._line = line

    def record(self, verify: bool = False) -> dict[str, Any]:
        """Return the server's record, or with `verify` what a recount of the rows comes to."""
        wait = RECOUNT_LIMIT if verify else 0.0
        found: dict[str, Any] = self._json(encode.report("verify" if verify else "record"), dict, wait)
        return found

    def queues(self) -> list[dict[str, Any]]:
        """Return one entry a queue."""
        found: list[dict[str, Any]] = self._json(encode.report("queues"), list)
        return found

    def job(self, id: str) -> dict[str, Any] | None:
        """Return all that is known of a job, or None."""
        try:
            found: dict[str, Any] = self._json(encode.show(id), dict)
        except ServerError as error:
            if error.code == "unknown":
                return None
            raise
        return found

    def dead(self, queue: str | None, limit: int, after: str | None) -> list[dict[str, Any]]:
        """Return a page of the dead list; `after` is the last id of the page before."""
        found: list[dict[str, Any]] = self._json(encode.browse(queue, limit, after), list)
        return found

    def requeue(self, id: str) -> str:
        """Put a dead job back: `ready`, or `already STATE`; raises KeyConflict when its key is held."""
        return self._word(encode.requeue(id), id)

    def purge(self, id: str) -> str:
        """Take a dead job off the list for good: `purged`, or `already STATE`."""
        return self._word(encode.purge(id), id)

    def cancel(self, id: str, terminate: bool = False) -> CancelAnswer:
        """Cancel a job: `cancelled`, `asked` when it runs, or `already STATE`."""
        return cast("CancelAnswer", self._word(encode.cancel_job(id, terminate), id))

    def switch(self, verb: QueueVerb, queue: str) -> str:
        """Pause, resume, close or open a queue: `paused`, `resumed`, `closed` or `open`."""
        return self._queue_words(encode.switch(verb, queue), queue)[0]

    def purge_queue(self, queue: str) -> int:
        """Cancel what waits in a queue, a bounded number a line; what comes meanwhile may be among it."""
        count = 0
        after: str | None = None
        while True:
            cancelled, going_on = self._queue_words(encode.purge_queue(queue, after), queue)
            count += int(cancelled)
            if going_on == "-":
                return count
            after = going_on

    def _ask(self, data: bytes, wait: float = 0.0) -> Reply:
        """Return the answer, which may take `wait` seconds to make; a connection that broke is made anew once."""
        try:
            return self._line.exchange(data, 1, wait)[0]
        except ConnectionError:
            pass
        try:
            return self._line.exchange(data, 1, wait)[0]
        except ProtocolError as error:
            raise BrokerUnavailable(str(error)) from error
        except ConnectionError as error:
            raise BrokerUnavailable(f"{error}; is `tenure server` running there?") from error

    def _json(self, data: bytes, kind: type[Any], wait: float = 0.0) -> Any:
        reply = self._ask(data, wait)
        if not reply.line.startswith(b"json "):
            raise error_of(reply.line)
        try:
            found = json.loads(reply.payload)
        except ValueError as error:
            raise ProtocolError(f"the server's JSON does not read: {error}") from None
        if type(found) is not kind:
            raise ProtocolError(f"the server's JSON is a {type(found).__name__}, not a {kind.__name__}")
        return found

    def _queue_words(self, data: bytes, queue: str) -> list[str]:
        line = self._ask(data).line
        if line.startswith(b"ok "):
            return line[3:].decode("ascii", "replace").split(" ")
        error = error_of(line)
        if isinstance(error, ServerError) and error.code == "unknown":
            raise QueueNotFound(f"no queue {shown(queue)} is known here; the first job makes it")
        raise error

    def _word(self, data: bytes, id: str) -> str:
        line = self._ask(data).line
        if line.startswith(b"ok "):
            return line[3:].decode("ascii", "replace")
        error = error_of(line, id)
        if isinstance(error, ServerError) and error.code == "unknown":
            raise JobNotFound(f"no job {id} is known here (any more)")
        raise error
