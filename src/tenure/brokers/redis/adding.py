"""One call of `add`: jobs that are sent again until each is answered, and what the answers came to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tenure.broker import Added
from tenure.brokers.adding import RESEND_LIMIT, Counts
from tenure.brokers.pool import Pool
from tenure.brokers.redis.layout import QUEUES, base
from tenure.brokers.redis.line import WRITE_ERRORS
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import ADD
from tenure.clock import Clock
from tenure.codec import encode_body
from tenure.errors import (
    AddError,
    BrokerUnavailable,
    KeyConflict,
    MessageTooLarge,
    NoSpace,
    ProtocolError,
    QueueClosed,
    ServerError,
    TenureError,
)
from tenure.message import Message
from tenure.names import shown
from tenure.retry import reconnect_delay

MAX_CALL = 500
"""Jobs in one call, during which the server answers nobody else."""
MAX_BYTES = 1024 * 1024
"""Bytes of bodies in one call; a single larger one goes alone."""


class Desk(Protocol):
    """What a call needs of its broker; times are seconds."""

    pool: Pool[Link]
    tally: Counts
    clock: Clock
    roll: Callable[[], float]
    add_timeout: float
    read_limit: float
    closing: threading.Event
    max_body: int
    registered: set[str]

    def note(self, id: str, queue: str) -> None:
        """Remember in which queue a job is."""


def add_one(desk: Desk, message: Message) -> list[Added]:
    """Add one message: nearly always one line out and one back, over a link that is idle.

    Whatever goes otherwise is an `AddCall`'s, which is told when the line was first written.
    """
    started = desk.clock.boot()
    link = desk.pool.lend_idle(started) if message.queue in desk.registered else None
    if link is None:
        return AddCall(desk, [message]).run()
    try:
        words: list[Word] = [message.id, pack_head(message), body := encode_body(message)]
        if len(body) > desk.max_body:
            raise ValueError
    except (TenureError, ValueError):
        desk.pool.give_back(link)
        return AddCall(desk, [message]).run()
    try:
        answer = link.call(ADD, [base(message.queue)], words, min(desk.read_limit, desk.add_timeout))
    except (ConnectionError, TenureError):
        desk.pool.give_up(link)
        return AddCall(desk, [message]).resume(started)
    except BaseException:
        desk.pool.give_up(link)
        desk.tally.gave_up([message.id])
        raise
    desk.pool.give_back(link)
    if answer == [1]:
        desk.tally.created()
        desk.note(message.id, message.queue)
        return [Added(message.id, True)]
    if answer == [2]:  # the queue's first job, though the queue was entered before: somebody has emptied the server
        desk.registered.discard(message.queue)
        return AddCall(desk, [message]).resume(started)
    return AddCall(desk, [message]).resume(started, answer)


class _Batch:
    """Jobs of one queue that are sent with one call, with the index of each; `written_at` is the first write's time."""

    __slots__ = ("indexes", "queue", "refusal", "size", "words", "written_at")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.words: list[Word] = []
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
        self._given_up: set[str] = set()
        self._batches = self._encode()

    def run(self, started: float | None = None) -> list[Added]:
        """Repeat until every call is answered; returns one answer a message, or raises BrokerUnavailable.

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

    def resume(self, written_at: float, answer: list[Any] | None = None) -> list[Added]:
        """Go on for one message that was first sent then, and what was answered, if anything was."""
        batch = self._batches[0]
        batch.written_at = written_at
        if answer is not None:
            self._sort(batch, answer)
        return self.run(written_at)

    # ------------------------------------------------------------------------------------------------- the calls

    def _encode(self) -> list[_Batch]:
        """Encode each message once and sort them into calls; one that cannot be sent gets its error."""
        batches: list[_Batch] = []
        open_: dict[str, _Batch] = {}
        for index, message in enumerate(self._messages):
            try:
                words = self._words(message)
            except (TenureError, ValueError) as error:
                self._refuse(index, error)
                continue
            size = len(words[2])
            batch = open_.get(message.queue)
            if batch is None or len(batch.indexes) >= MAX_CALL or batch.size + size > MAX_BYTES:
                batch = open_[message.queue] = _Batch(message.queue)
                batches.append(batch)
            batch.words += words
            batch.indexes.append(index)
            batch.size += size
        return batches

    def _words(self, message: Message) -> tuple[str, bytes, bytes]:
        head, body = pack_head(message), encode_body(message)
        if len(body) > self._desk.max_body:
            raise MessageTooLarge(message.id, len(body), self._desk.max_body)
        return message.id, head, body

    def _refuse(self, index: int, error: Exception) -> None:
        message = self._messages[index]
        if not isinstance(error, TenureError):
            error = AddError(f"job {message.id} has no wire form: {error}", message.id)
        self._results[index] = Added(message.id, False, error)

    # ------------------------------------------------------------------------------------------------- the tries

    def _run_batch(self, batch: _Batch, started: float) -> None:
        """Send what is unanswered again and again until all is answered or the time is over."""
        desk = self._desk
        failures = 0
        why: Exception | None = None
        while batch.indexes:
            left = self._left(batch, started)
            if left <= 0 or desk.closing.is_set():
                raise self._unavailable(why, batch) from (batch.refusal or why)
            try:
                self._try(batch, left)
            except ConnectionError as error:
                why = error
            except TenureError as error:  # access, or a setting of the server: another try would get the same
                raise self._unavailable(error, batch) from error
            if batch.indexes:
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
        """Send the unanswered jobs once."""
        desk = self._desk
        limit = min(desk.read_limit, left)
        link = desk.pool.lend(left)
        try:
            if batch.queue not in desk.registered:
                register(link, batch.queue, limit)
                desk.registered.add(batch.queue)
            if batch.written_at is None:
                batch.written_at = desk.clock.boot()
            answers = self._ask(link, batch, limit)
            if 2 in answers:  # see `add_one`
                register(link, batch.queue, limit)
        except BaseException:
            desk.pool.give_up(link)
            raise
        desk.pool.give_back(link)
        self._sort(batch, answers)

    def _ask(self, link: Link, batch: _Batch, limit: float) -> list[Any]:
        try:
            answers: list[Any] = link.call(ADD, [base(batch.queue)], batch.words, limit)
        except ServerError as error:
            if error.code == "OOM":
                return [error] * len(batch.indexes)
            if error.code not in WRITE_ERRORS:
                raise
            batch.refusal = error
            raise ConnectionError(f"the server cannot write now: {error.text}") from error
        return answers

    def _sort(self, batch: _Batch, answers: list[Any]) -> None:
        """Give each answered job its result."""
        if len(answers) != len(batch.indexes):
            raise ProtocolError(f"the server answered {len(answers)} jobs, and was asked about {len(batch.indexes)}")
        for index, answer in zip(batch.indexes, answers, strict=True):
            self._results[index] = self._answer(self._messages[index], answer)
        batch.words, batch.indexes = [], []

    def _answer(self, message: Message, answer: Any) -> Added:
        """Read one answer and count it."""
        tally, id = self._desk.tally, message.id
        if isinstance(answer, int):
            if id not in self._given_up or tally.resent(id):
                tally.created()
            self._desk.note(id, message.queue)
            return Added(id, True)
        if id in self._given_up:
            tally.resent(id)
        if isinstance(answer, ServerError):
            return Added(id, False, NoSpace(f"job {id} was not added: the server's memory is full ({answer.text})", id))
        kind, *rest = answer
        if kind == 1:
            first: str = rest[0].decode()
            tally.exists(first)
            self._desk.note(first, message.queue)
            return Added(first, False)
        if kind == 2:
            return Added(id, False, KeyConflict(id, rest[0].decode(), rest[1].decode()))
        text = f"queue {shown(message.queue)} is closed for new jobs; job {id} was not added"
        return Added(id, False, QueueClosed(text, id))

    # -------------------------------------------------------------------------------------------------- giving up

    def _unavailable(self, why: Exception | None, batch: _Batch) -> BrokerUnavailable:
        ids = [self._messages[index].id for one in self._batches for index in one.indexes]
        first = self._messages[batch.indexes[0]]
        what = f"job {first.id}" if len(ids) == 1 else f"{len(ids)} jobs, {first.id} the first,"
        said = None if batch.refusal is None else f"the server answered {batch.refusal}"
        because = "; ".join(str(one) for one in (said, why) if one is not None) or "no answer in time"
        if self._desk.closing.is_set():
            because = "the broker is closed"
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
                    f"job {first.id} was first sent more than {RESEND_LIMIT / 60:g} min ago and is not confirmed: it "
                    "is not sent again any more. Only a call with an explicit key is still safe"
                )
                raise BrokerUnavailable(text, first.id, first.key or first.id)
        return self.run()


def register(link: Link, queue: str, limit: float) -> None:
    """Enter a queue among those that are known, before its first job is in it; raises ConnectionError."""
    link.command("SADD", QUEUES, queue, limit=limit, key=QUEUES)
