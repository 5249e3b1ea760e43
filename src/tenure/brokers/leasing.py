"""Taking, settling and extending over our server's protocol.

An exchange that broke is raised as a ConnectionError; the caller repeats it, and the repeat goes over a new
connection.  What is repeated is byte for byte what was sent before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar, cast

from tenure.broker import EndedAs, Extend, Extended, Settled
from tenure.brokers.connection import Connection
from tenure.brokers.pool import IDLE_LIMIT
from tenure.clock import Clock, own_deadline
from tenure.codec import decode_body, encode_body
from tenure.errors import DecodeError, ServerError
from tenure.message import Delivery, Message, Raw, Settlement, When
from tenure.wire import encode
from tenure.wire.commands import MAX_BATCH_LINES, MAX_TAKE, Job
from tenure.wire.replies import Reply, parse_bye, parse_extended, parse_jobs, parse_settled

T = TypeVar("T")

MAX_WRITE = 1024 * 1024
"""Bytes of settlements in one write; a single larger one goes alone."""


class Line:
    """One connection that is made when it is needed, and made anew after a fault; one exchange at a time.

    `open` returns a connection; `read_limit` is the seconds beyond what was asked for that an answer may take.
    """

    def __init__(self, open: Callable[[], Connection], clock: Clock, read_limit: float) -> None:
        self._open = open
        self._boot = clock.boot
        self._wall = clock.wall
        self._read_limit = read_limit
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self.epoch = 0.0
        """When the server's calendar began, in seconds of the own boot clock: what it says in dates is told by that."""

    def exchange(self, data: bytes, answers: int, wait: float = 0.0) -> tuple[float, list[Reply]]:
        """Write `data` and return when (own clock, right before the write) and the answers; raises ConnectionError.

        `wait` is how many seconds the server was asked to wait at most.
        """
        with self._lock:
            connection = self._ready()
            replies: list[Reply] = []
            sent_at = self._boot()
            connection.exchange(data, answers, wait + self._read_limit, replies)
            return sent_at, replies

    def _ready(self) -> Connection:
        """Return a connection on which a line can be written now."""
        if self._closing.is_set():
            raise ConnectionError("this line to the broker is closed")
        connection = self._connection
        if connection is None or connection.closed or self._boot() - connection.used_at >= IDLE_LIMIT:
            # The old one is closed first: a line is never on its way over two connections that are both open.
            self.drop()
            connection = self._connection = self._open()
            self.epoch = self._boot() - connection.welcome.time / 1000
            if self._closing.is_set():  # by another thread, which found no connection to interrupt
                self.drop()
                raise ConnectionError("this line to the broker is closed")
        return connection

    def drop(self) -> None:
        """Close the connection; the next exchange makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Make an exchange that waits in another thread end with a ConnectionError."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        """Close for good; an exchange that waits in another thread ends first."""
        self._closing.set()
        self.interrupt()
        with self._lock:
            self.drop()


class ServerConsumer:
    """A worker process's two lines: one to take, one to settle, used from different threads."""

    def __init__(self, taking: Line, settling: Line, queues: Sequence[str], visibility_timeout: float) -> None:
        self._taking = taking
        self._settling = settling
        self._queues = tuple(queues)
        self._visibility_timeout = visibility_timeout
        self.number = 1
        self._pending: tuple[bytes, float] | None = None

    def take(self, limit: int, wait: float, queues: Sequence[str] | None = None) -> list[Delivery]:
        """Take up to `limit` jobs, waiting up to `wait` seconds for the first, from `queues` (None: from all).

        After a ConnectionError the next call repeats the pending line, whatever it is asked for: what the server
        handed out meanwhile comes with it.  Raises ServerError when the server refused the line.
        """
        if self._pending is None:
            count = min(limit, MAX_TAKE)
            names = self._queues if queues is None else tuple(queues)
            self._pending = (encode.take(self.number, count, wait, self._visibility_timeout, names), wait)
        data, asked = self._pending
        sent_at, (reply,) = self._taking.exchange(data, 1, asked)
        jobs = self._jobs(reply)
        self._pending = None
        self.number += 1
        return [_delivery(job, sent_at, self._taking.epoch) for job in jobs]

    def _jobs(self, reply: Reply) -> list[Job]:
        """Read a take's answer; what is no answer to this take breaks the exchange, and the line stays pending."""
        try:
            return parse_jobs(reply.line, reply.payload)
        except ConnectionError:
            self._taking.drop()
            raise
        except ServerError as error:
            if error.code == "storage":
                raise ConnectionError(f"the server cannot write now: {error.text}") from error
            if error.code == "stale":
                self._taking.drop()
                raise ConnectionError(f"an older copy of the take was answered: {error.text}") from error
            self._pending = None
            raise

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Send the settlements and return the answers in the same order.

        Raises ConnectionError when there was no complete answer or the server could not write, and ServerError when
        it refuses one of the lines as such; the others may have been taken, so call again with the same ones.
        """
        return _settle(self._settling, settlements, None)

    def interrupt(self) -> None:
        """End a `take` that waits in another thread with a ConnectionError.

        What the server hands out to it all the same comes with the next `take`, or goes back at the session's `bye`.
        """
        self._taking.interrupt()

    def close(self) -> None:
        """Close both lines; a `take` or `settle` that waits raises ConnectionError."""
        self._taking.close()
        self._settling.close()


class ServerKeeper:
    """Extends and ends leases for sessions that are not its own."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def extend(self, items: Sequence[Extend]) -> list[Extended]:
        """Extend each receipt's lease; raises ConnectionError when there was no complete answer."""
        parts = [items[at : at + encode.RECEIPTS_PER_LINE] for at in range(0, len(items), encode.RECEIPTS_PER_LINE)]
        out: list[Extended] = []
        for part in parts:
            sent_at, (reply,) = self._line.exchange(encode.extend(part), 1)
            for hold, cancel in self._read(parse_extended, reply, len(part)):
                deadline = None if hold is None else own_deadline(sent_at, hold / 1000)
                out.append(Extended(deadline, cast("Literal['ask', 'terminate'] | None", cancel)))
        return out

    def settle(self, session: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle for a child of that session that was stopped, before its `bye`; raises as the consumer's does."""
        return _settle(self._line, settlements, session)

    def bye(self, session: str, end: Literal["left", "lost"], cause: str, settling: Sequence[bytes]) -> list[EndedAs]:
        """Give back all that the session still holds; returns how each receipt in `settling` had ended."""
        step = encode.RECEIPTS_PER_LINE
        parts = [settling[at : at + step] for at in range(0, len(settling), step)] or [()]
        out: list[EndedAs] = []
        for part in parts:
            _, (reply,) = self._line.exchange(encode.bye(session, end, cause, part), 1)
            out += [EndedAs(how, late) for how, late in self._read(parse_bye, reply, len(part))]
        return out

    def untake(self, session: str, number: int, cause: str, held: Sequence[bytes]) -> None:
        """Give back what a session's take was given, but for what is held; raises ConnectionError."""
        _, (reply,) = self._line.exchange(encode.untake(session, number, cause, held), 1)
        self._read(parse_bye, reply, 0)

    def _read(self, parse: Callable[[bytes, int], list[T]], reply: Reply, count: int) -> list[T]:
        """Read an answer; one that is none breaks the connection."""
        try:
            return parse(reply.line, count)
        except ServerError as error:
            if error.code == "storage":
                raise ConnectionError(f"the server cannot write now: {error.text}") from error
            raise
        except ConnectionError:
            self._line.drop()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def _delivery(job: Job, sent_at: float, epoch: float) -> Delivery:
    """Make a job line a delivery; a body that does not decode becomes a Raw."""
    id = job.id.hex()
    return Delivery(  # by place and not by name, which takes a third of the time
        _message(id, job),
        b"%b:%d" % (id.encode("ascii"), job.number),
        job.number,
        job.attempt,
        job.losses,
        job.vt / 1000,
        own_deadline(sent_at, job.hold / 1000),
        None if job.expires is None else _start_by(epoch + job.expires / 1000, sent_at),
    )


def _start_by(moment: float, sent_at: float) -> float | None:
    """Return the latest start, unless the server's clock was set meanwhile: it hands out nothing that is too late."""
    return moment if moment > sent_at else None


def _message(id: str, job: Job) -> Message | Raw:
    try:
        version, args, checksum, headers, timeout = decode_body(job.body)
    except DecodeError as error:
        return Raw(id, job.queue, job.task, job.body, str(error), error.version)
    return Message(
        id,
        job.task,
        args,
        checksum,
        job.fingerprint,
        job.queue,
        job.key,
        job.priority,
        None if job.run_at is None else When(job.run_at / 1000),
        None if job.expires is None else When(job.expires / 1000),
        timeout,
        job.vt / 1000,
        job.max_attempts,
        job.max_losses,
        headers,
        version,
    )


def _settle(line: Line, settlements: Sequence[Settlement], session: str | None) -> list[Settled]:
    """Send settlements in as few writes as the limits allow and read all their answers."""
    out: list[Settled] = []
    refused: ServerError | None = None
    for data, count in _writes(settlements, session):
        _, replies = line.exchange(data, count)
        for reply in replies:
            try:
                answer, detail, added = parse_settled(reply.line)
                out.append(Settled(cast("Literal['ok']", answer), detail, added))
            except ServerError as error:
                if error.code == "storage":
                    raise ConnectionError(f"the server cannot write now: {error.text}") from error
                refused = refused or error
            except ConnectionError:
                line.drop()
                raise
    if refused is not None:
        raise refused
    return out


def _writes(settlements: Sequence[Settlement], session: str | None) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of each write and how many answers it gets."""
    lines: list[bytes] = []
    size = frames = 0
    for settlement in settlements:
        packed = encode.settle(settlement, [encode_body(message) for message in settlement.then], session)
        more = 1 + len(settlement.then)
        if lines and (frames + more > MAX_BATCH_LINES or size + len(packed) > MAX_WRITE):
            yield b"".join(lines), len(lines)
            lines, size, frames = [], 0, 0
        lines.append(packed)
        size += len(packed)
        frames += more
    if lines:
        yield b"".join(lines), len(lines)
