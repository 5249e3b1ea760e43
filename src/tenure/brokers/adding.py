"""One call of `add`: lines that are repeated until each is answered, and what the answers came to."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from tenure.broker import Added, ProducerCounts
from tenure.brokers.bounded import SMALL
from tenure.brokers.connection import Connection
from tenure.brokers.pool import Pool
from tenure.clock import Clock
from tenure.codec import encode_body
from tenure.errors import AddError, BrokerUnavailable, MessageTooLarge, ProtocolError, ServerError, TenureError
from tenure.message import Message
from tenure.retry import reconnect_delay
from tenure.wire import encode
from tenure.wire.commands import MAX_BATCH_LINES, MAX_LINE
from tenure.wire.replies import Reply, error_of, parse_added

MAX_WRITE = 1024 * 1024
"""Bytes of adds in one write; a single larger one goes alone."""
RESEND_LIMIT = 300.0
"""Seconds after its first write during which a line is repeated; the server knows it for twice as long."""

_STORAGE = b"err storage"


class Counts:
    """What a process's adds came to; safe to use from several threads.

    An unconfirmed id that a later answer names counts as added, for then it was stored.
    """

    MAX_KEPT = 100_000
    """Unconfirmed ids that are kept to be met again; older ones stay unconfirmed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added = 0
        self._duplicates = 0
        self._unconfirmed = 0
        self._open: dict[str, None] = {}

    def created(self) -> None:
        """Count a job that was made at the first call."""
        with self._lock:
            self._added += 1

    def exists(self, first_id: str) -> None:
        """Count a duplicate of `first_id`."""
        with self._lock:
            self._duplicates += 1
            if self._settle(first_id):
                self._added += 1

    def gave_up(self, ids: Sequence[str]) -> None:
        """Count adds that may or may not be stored."""
        with self._lock:
            self._unconfirmed += len(ids)
            self._open.update(dict.fromkeys(ids))
            while len(self._open) > self.MAX_KEPT:
                del self._open[next(iter(self._open))]

    def resent(self, id: str) -> bool:
        """Take an id off the unconfirmed ones; False when it was not among them any more and is counted already."""
        with self._lock:
            return self._settle(id)

    def _settle(self, id: str) -> bool:
        if not self._open or id not in self._open:
            return False
        del self._open[id]
        self._unconfirmed -= 1
        return True

    def now(self) -> ProducerCounts:
        """Return the counts."""
        with self._lock:
            return ProducerCounts(self._added, self._duplicates, self._unconfirmed)


class Desk(Protocol):
    """What a call needs of its broker; times are seconds."""

    pool: Pool[Connection]
    tally: Counts
    clock: Clock
    roll: Callable[[], float]
    add_timeout: float
    read_limit: float
    closing: threading.Event
    max_body: int

    def learn(self, limit: float) -> None:
        """Connect once, so that `max_body` is the server's and not the default."""


def add_one(desk: Desk, message: Message) -> list[Added]:
    """Add one message: nearly always one line out and one back, over a connection that is idle.

    Whatever goes otherwise is an `AddCall`'s, which is told when the line was first written and what was answered.
    """
    started = desk.clock.boot()
    line = _small_line(message, desk.max_body)
    connection = None if line is None else desk.pool.lend_idle(started)
    if line is None or connection is None:
        return AddCall(desk, [message]).run()
    try:
        answer = connection.ask(line, min(desk.read_limit, desk.add_timeout), started)
    except ConnectionError:
        desk.pool.give_up(connection)
        return AddCall(desk, [message]).resume(started)
    except BaseException:
        desk.pool.give_up(connection)
        desk.tally.gave_up([message.id])
        raise
    desk.pool.give_back(connection)
    if answer == b"ok %b created" % message.id.encode("ascii"):
        desk.tally.created()
        return [Added(message.id, True)]
    return AddCall(desk, [message]).resume(started, answer, connection.welcome.body)


def _small_line(message: Message, max_body: int) -> bytes | None:
    """The message's line, or None where it needs a closer look."""
    try:
        body = encode_body(message)
        line = encode.add(message, body)
    except (TenureError, ValueError):
        return None
    return line if len(line) <= SMALL and len(body) <= max_body else None


def _because(why: Exception | None, refusal: Exception | None) -> str:
    """Say what kept the answer away: what the server said, and what happened to the connection."""
    said = None if refusal is None else f"the server answered {refusal}"
    if why is not None and isinstance(why.__cause__, OSError):  # there was not even a connection
        no_files = why.__cause__.errno in (errno.EMFILE, errno.ENFILE)
        hint = "close some, or raise `ulimit -n`" if no_files else "is `tenure server` running there?"
        why = ConnectionError(f"{why}; {hint}")
    return "; ".join(str(one) for one in (said, why) if one is not None) or "no answer in time"


class _Batch:
    """Lines that go out in one write, with the index of each one's message; `written_at` is the first write's time.

    `refusal` is why the server could not store some of them when it was asked last.
    """

    __slots__ = ("indexes", "lines", "refusal", "size", "written_at")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.indexes: list[int] = []
        self.size = 0
        self.written_at: float | None = None
        self.refusal: Exception | None = None


class AddCall:
    """The messages of one `add`, encoded once; `run` may be called again after BrokerUnavailable."""

    def __init__(self, desk: Desk, messages: Sequence[Message]) -> None:
        self._desk = desk
        self._messages = messages
        self._results: list[Added | None] = [None] * len(messages)
        self._sizes = [0] * len(messages)
        self._given_up: set[str] = set()
        self._learnt = False
        self._batches = self._encode()

    def run(self, started: float | None = None) -> list[Added]:
        """Repeat until every line is answered; returns one answer a message, or raises BrokerUnavailable.

        `started` (boot clock) is when the first batch's time began; now, where it is not given.
        """
        try:
            while self._batches:
                self._run_batch(self._batches[0], self._desk.clock.boot() if started is None else started)
                started = None
                del self._batches[0]
        except BaseException:
            self._note_unconfirmed()
            raise
        return [result for result in self._results if result is not None]

    def resume(self, written_at: float, answer: bytes | None = None, max_body: int = 0) -> list[Added]:
        """Go on for one message whose line was first written then, and what was answered, if anything was."""
        batch = self._batches[0]
        batch.written_at = written_at
        if answer is not None:
            self._sort(batch, max_body, [Reply(answer)])
        return self.run(written_at)

    # ------------------------------------------------------------------------------------------------- the lines

    def _encode(self) -> list[_Batch]:
        """Encode each message once and lay the lines into batches; one that cannot be sent gets its error."""
        batches: list[_Batch] = []
        batch = _Batch()
        for index, message in enumerate(self._messages):
            line = self._line(index, message)
            if line is None:
                continue
            full = len(batch.lines) >= MAX_BATCH_LINES or batch.size + len(line) > MAX_WRITE
            if full or not batches:
                batch = _Batch()
                batches.append(batch)
            batch.lines.append(line)
            batch.indexes.append(index)
            batch.size += len(line)
        return batches

    def _line(self, index: int, message: Message) -> bytes | None:
        """Return the message's line, or None and note why there is none."""
        try:
            body = encode_body(message)
            size = self._sizes[index] = len(body)
            line = encode.add(message, body)
        except TenureError as error:
            self._refuse(index, error)
            return None
        except ValueError as error:
            self._refuse(index, AddError(f"job {message.id} has no wire form: {error}", message.id))
            return None
        if len(line) - size > MAX_LINE:
            self._refuse(index, AddError(f"job {message.id}: its names and key are too long", message.id))
            return None
        desk = self._desk
        if size > desk.max_body:
            self._learn()
            if size > desk.max_body:
                self._refuse(index, MessageTooLarge(message.id, size, desk.max_body))
                return None
        return line

    def _learn(self) -> None:
        """Ask the server for its limit, once; without an answer the line goes out and is answered `too-large`."""
        if not self._learnt:
            self._learnt = True
            with suppress(ConnectionError, ServerError):
                self._desk.learn(min(self._desk.read_limit, self._desk.add_timeout))

    def _refuse(self, index: int, error: Exception) -> None:
        self._results[index] = Added(self._messages[index].id, False, error)

    # ------------------------------------------------------------------------------------------------- the tries

    def _run_batch(self, batch: _Batch, started: float) -> None:
        """Write what is unanswered again and again until all is answered or the time is over."""
        desk = self._desk
        failures = 0
        why: Exception | None = None
        while batch.lines:
            left = self._left(batch, started)
            if left <= 0 or desk.closing.is_set():
                raise self._unavailable(why, batch) from (batch.refusal or why)
            try:
                self._try(batch, left)
            except ConnectionError as error:
                why = error
            except ServerError as error:  # the answer to hello: another try would get the same
                raise self._unavailable(error, batch) from error
            if batch.lines:
                failures += 1
                left = max(0.0, self._left(batch, started))
                desk.clock.wait(desk.closing, min(left, reconnect_delay(failures, desk.roll())))

    def _left(self, batch: _Batch, started: float) -> float:
        """Return the seconds that are left to this run."""
        now = self._desk.clock.boot()
        left = self._desk.add_timeout - (now - started)
        if batch.written_at is not None:
            left = min(left, RESEND_LIMIT - (now - batch.written_at))
        return left

    def _try(self, batch: _Batch, left: float) -> None:
        """Write the unanswered lines once; those that were answered leave the batch, also when the rest were not."""
        desk = self._desk
        connection = desk.pool.lend(left)
        if batch.written_at is None:
            batch.written_at = desk.clock.boot()
        replies: list[Reply] = []
        try:
            connection.exchange(b"".join(batch.lines), len(batch.lines), min(desk.read_limit, left), replies)
        except BaseException:
            desk.pool.give_up(connection)
            self._sort(batch, connection.welcome.body, replies)
            raise
        error = self._sort(batch, connection.welcome.body, replies)
        if error is None:
            desk.pool.give_back(connection)
        else:
            desk.pool.give_up(connection)
            raise error

    def _sort(self, batch: _Batch, max_body: int, replies: list[Reply]) -> ConnectionError | None:
        """Give each answered line its result; a line without one stays in the batch, with the reason returned."""
        lines, indexes = batch.lines, batch.indexes
        batch.lines, batch.indexes = [], []
        wrong: ConnectionError | None = None
        for place, index in enumerate(indexes):
            if place < len(replies):
                line = replies[place].line
                try:
                    if not line.startswith(_STORAGE):
                        self._results[index] = self._answer(index, line, max_body)
                        continue
                    batch.refusal = error_of(line)
                except ProtocolError as error:
                    wrong = error
            batch.lines.append(lines[place])
            batch.indexes.append(index)
        return wrong

    def _answer(self, index: int, line: bytes, max_body: int) -> Added:
        """Read one answer and count it."""
        message = self._messages[index]
        tally = self._desk.tally
        if not self._given_up and line == b"ok %b created" % message.id.encode("ascii"):
            tally.created()
            return Added(message.id, True)
        try:
            id, created = parse_added(line, message.id, message.key or message.id, self._sizes[index], max_body)
        except (AddError, ServerError) as error:
            if message.id in self._given_up:
                tally.resent(message.id)
            return Added(message.id, False, error)
        open_still = message.id not in self._given_up or tally.resent(message.id)
        if created and id != message.id:
            raise ProtocolError(f"the answer names job {id}, the line was about {message.id}")
        if created:
            if open_still:
                tally.created()
        else:
            tally.exists(id)
        return Added(id, created)

    # -------------------------------------------------------------------------------------------------- giving up

    def _unavailable(self, why: Exception | None, batch: _Batch) -> BrokerUnavailable:
        ids = [self._messages[index].id for one in self._batches for index in one.indexes]
        first = self._messages[batch.indexes[0]]
        what = f"job {first.id}" if len(ids) == 1 else f"{len(ids)} jobs, {first.id} the first,"
        because = "the broker is closed" if self._desk.closing.is_set() else _because(why, batch.refusal)
        text = f"{what} not confirmed; safe to send again with resend(), or by a call with the same key ({because})"
        return BrokerUnavailable(text, first.id, first.key or first.id, self._resend)

    def _note_unconfirmed(self) -> None:
        ids = [self._messages[index].id for batch in self._batches for index in batch.indexes]
        news = [id for id in ids if id not in self._given_up]
        self._desk.tally.gave_up(news)
        self._given_up.update(news)

    def _resend(self) -> list[Added]:
        now = self._desk.clock.boot()
        for batch in self._batches:
            if batch.written_at is not None and now - batch.written_at >= RESEND_LIMIT:
                first = self._messages[batch.indexes[0]]
                text = (
                    f"job {first.id} was first sent more than {RESEND_LIMIT / 60:g} min ago and is not confirmed: the "
                    "same line is not repeated any more. Only a call with an explicit key is still safe"
                )
                raise BrokerUnavailable(text, first.id, first.key or first.id)
        return self.run()
