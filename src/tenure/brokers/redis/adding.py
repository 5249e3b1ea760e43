"""One call of `add` on Redis: jobs that are sent again until each is answered."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from tenure.broker import Added
from tenure.brokers import repeating
from tenure.brokers.pool import Pool
from tenure.brokers.redis.layout import QUEUES, base
from tenure.brokers.redis.line import WRITE_ERRORS
from tenure.brokers.redis.link import Link
from tenure.brokers.redis.node import fields
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.refusals import cannot_write, full_memory
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import ADD
from tenure.brokers.repeating import Batch, RepeatedCall
from tenure.codec import encode_body
from tenure.errors import (
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

MAX_CALL = 500
"""Jobs in one call, during which the server answers nobody else."""
MAX_BYTES = 1024 * 1024
"""Bytes of bodies in one call; a single larger one goes alone."""


class Desk(repeating.Desk, Protocol):
    """What a call needs of its broker; times are seconds."""

    pool: Pool[Link]
    read_limit: float
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


class _Batch(Batch):
    """Jobs of one queue that are sent with one call."""

    __slots__ = ("queue", "words")

    def __init__(self, queue: str) -> None:
        super().__init__()
        self.queue = queue
        self.words: list[Word] = []


class AddCall(RepeatedCall[Desk, _Batch]):
    """The messages of one `add` as calls of a script, one or more for each queue."""

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
            raise MessageTooLarge(message.id, len(body), self._desk.max_body, fixed=True)
        return message.id, head, body

    # ------------------------------------------------------------------------------------------------- the tries

    def _try(self, batch: _Batch, left: float) -> None:
        """Send the unanswered jobs once."""
        desk = self._desk
        limit = min(desk.read_limit, left)
        link = desk.pool.lend(left)
        try:
            answers = self._ask(link, batch, limit)
            if 2 in answers:  # see `add_one`
                register(link, batch.queue, limit)
        except BaseException:
            desk.pool.give_up(link)
            raise
        desk.pool.give_back(link)
        self._sort(batch, answers)

    def _ask(self, link: Link, batch: _Batch, limit: float) -> list[Any]:
        desk = self._desk
        try:
            if batch.queue not in desk.registered:
                register(link, batch.queue, limit)
                desk.registered.add(batch.queue)
            link.run_of(base(batch.queue), limit)  # connects: what is refused by then was told of no job
            if batch.written_at is None:
                batch.written_at = desk.clock.boot()
            answers: list[Any] = link.call(ADD, [base(batch.queue)], batch.words, limit)
        except ServerError as error:
            if error.code == "OOM":
                full = ServerError(error.code, full_memory(_most_memory(link, batch.queue, limit)))
                return [full] * len(batch.indexes)
            if error.code not in WRITE_ERRORS:
                raise
            batch.refusal = error
            raise ConnectionError(cannot_write(error)) from error
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
            return Added(id, False, NoSpace(f"job {id} was not added: {answer.text}", id))
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


def _most_memory(link: Link, queue: str, limit: float) -> str:
    """Return how much memory the queue's server may use, as people write it; "" where it does not say."""
    with suppress(ConnectionError, TenureError):
        memory = fields(link.command("INFO", "memory", limit=limit, key=base(queue)))
        return memory.get("maxmemory_human", "") if memory.get("maxmemory", "0") != "0" else ""
    return ""


def register(link: Link, queue: str, limit: float) -> None:
    """Enter a queue among those that are known, before its first job is in it; raises ConnectionError."""
    link.command("SADD", QUEUES, queue, limit=limit, key=QUEUES)
