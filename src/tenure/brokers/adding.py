"""One call of `add` at our own server: lines that are repeated until each is answered."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tenure.broker import Added
from tenure.brokers import repeating
from tenure.brokers.bounded import SMALL
from tenure.brokers.connection import Connection
from tenure.brokers.pool import Pool
from tenure.brokers.repeating import Batch, RepeatedCall
from tenure.codec import encode_body
from tenure.errors import AddError, MessageTooLarge, ProtocolError, ServerError, TenureError
from tenure.message import Message
from tenure.wire import encode
from tenure.wire.commands import MAX_BATCH_LINES, MAX_LINE
from tenure.wire.replies import Reply, error_of, parse_added

MAX_WRITE = 1024 * 1024
"""Bytes of adds in one write; a single larger one goes alone."""

_STORAGE = b"err storage"
_CREATED = b"ok %b created"
"""What nearly every add is answered."""


class Desk(repeating.Desk, Protocol):
    """What a call needs of its broker; times are seconds."""

    pool: Pool[Connection]
    read_limit: float
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
    if answer == _CREATED % message.id.encode("ascii"):
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


class _Batch(Batch):
    """Lines that go out in one write."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[bytes] = []


class AddCall(RepeatedCall[Desk, _Batch]):
    """The messages of one `add` as lines."""

    def __init__(self, desk: Desk, messages: Sequence[Message]) -> None:
        self._sizes = [0] * len(messages)
        self._learnt = False
        super().__init__(desk, messages)

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
        except (TenureError, ValueError) as error:
            self._refuse(index, error)
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

    # ------------------------------------------------------------------------------------------------- the tries

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
        if self._all_created(indexes, replies):
            return None
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

    def _all_created(self, indexes: list[int], replies: list[Reply]) -> bool:
        """Whether each line was answered as nearly always, by the job that it made; if so, they have their results."""
        ids = [self._messages[index].id for index in indexes]
        if self._given_up or replies != [(_CREATED % id.encode("ascii"), b"") for id in ids]:
            return False
        for index, id in zip(indexes, ids, strict=True):
            self._results[index] = Added(id, True)
        self._desk.tally.created(len(ids))
        return True

    def _answer(self, index: int, line: bytes, max_body: int) -> Added:
        """Read one answer and count it."""
        message = self._messages[index]
        tally = self._desk.tally
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

    def _because(self, why: Exception | None, refusal: Exception | None) -> str:
        if why is not None and isinstance(why.__cause__, OSError):  # there was not even a connection
            no_files = why.__cause__.errno in (errno.EMFILE, errno.ENFILE)
            hint = "close some, or raise `ulimit -n`" if no_files else "is `tenure server` running there?"
            why = ConnectionError(f"{why}; {hint}")
        return super()._because(why, refusal)
