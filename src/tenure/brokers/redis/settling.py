"""Settlements on their way: sorted by queue, sent in as few calls as the limits allow, and answered in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

from tenure.broker import Settled
from tenure.brokers.redis.handing_over import Outgoing, hand_over
from tenure.brokers.redis.line import Ask, Line
from tenure.brokers.redis.packed import pack_head
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import SETTLE
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.codec import encode_body
from tenure.message import Settlement
from tenure.wire.encode import milliseconds

MAX_CALL = 200
"""Settlements in one call, during which the server answers nobody else."""
MAX_BYTES = 1024 * 1024
MAX_REASON = 1_000
GONE = Settled("gone")


class Retention(NamedTuple):
    """How long ended jobs and their keys stay, in milliseconds."""

    result_ttl: int = 3_600_000
    key_window: int = 86_400_000


def settle(
    line: Line,
    where: Whereabouts,
    settlements: Sequence[Settlement],
    session: str,
    retention: Retention,
    *,
    mine_only: bool,
) -> list[Settled]:
    """Send settlements and return the answers in order; raises ConnectionError where not all were answered.

    `mine_only`: end none of another session than this.
    """
    queues = _queues(where, settlements)
    out = [GONE] * len(settlements)
    by_queue: dict[str, list[int]] = {}
    for place, one in enumerate(settlements):
        queue = queues.get(receipt_id(one.receipt))
        if queue is not None:
            by_queue.setdefault(queue, []).append(place)
    head: list[Word] = [session, "as" if mine_only else "", retention.result_ttl, retention.key_window]
    for asks, places in _writes(by_queue, settlements, head):
        _, answers = line.ask_all(asks)
        for place, answer in zip(places, _all(answers), strict=True):
            out[place] = _settled(answer)
    _hand_over(line, queues, settlements, out)
    return out


def _queues(where: Whereabouts, settlements: Sequence[Settlement]) -> dict[str, str]:
    """Return which queue to ask about each job; for one that is known nowhere any, as all know a closed session."""
    queues = where.find(receipt_id(one.receipt) for one in settlements)
    missing = [id for one in settlements if (id := receipt_id(one.receipt)) not in queues]
    if missing:
        any_queue = where.queues()[:1]
        queues |= {id: queue for id in missing for queue in any_queue}
    return queues


def _hand_over(line: Line, queues: dict[str, str], settlements: Sequence[Settlement], out: list[Settled]) -> None:
    """Have jobs for other queues stored there, and complete the answers with what that came to."""
    jobs: list[Outgoing] = []
    for one, answer in zip(settlements, out, strict=True):
        if answer.answer == "ok" and one.then:
            source = queues[receipt_id(one.receipt)]
            jobs += [
                Outgoing(source, message.queue, message.id, pack_head(message), encode_body(message))
                for message in one.then
                if message.queue != source
            ]
    if not jobs:
        return
    made = hand_over(line, jobs)
    for place, (one, answer) in enumerate(zip(settlements, out, strict=True)):
        if answer.added:
            pairs = zip(one.then, answer.added, strict=True)
            out[place] = answer._replace(added=tuple(made.get(message.id, was_made) for message, was_made in pairs))


def receipt_id(receipt: bytes) -> str:
    """Return the job's id in a receipt."""
    return receipt.partition(b":")[0].decode("ascii", "replace")


def receipt_words(receipt: bytes) -> tuple[bytes, bytes]:
    """Return a receipt's id and number."""
    id, _, number = receipt.partition(b":")
    return id, number if number.isdigit() else b"0"


def _writes(
    by_queue: dict[str, list[int]], settlements: Sequence[Settlement], head: list[Word]
) -> Iterator[tuple[list[Ask], list[int]]]:
    """Yield the calls of each write, and which settlements are in it."""
    asks: list[Ask] = []
    done: list[int] = []
    size = 0
    for queue, places in by_queue.items():
        words, within = list(head), 0
        for place in places:
            one = _words(queue, settlements[place])
            bytes_of_it = sum(len(word) for word in one if isinstance(word, bytes))
            if within and (within >= MAX_CALL or size + bytes_of_it > MAX_BYTES):
                yield [*asks, Ask(SETTLE, queue, words)], done
                asks, done, words, within, size = [], [], list(head), 0, 0
            words += one
            done.append(place)
            within += 1
            size += bytes_of_it
        asks.append(Ask(SETTLE, queue, words))
    if asks:
        yield asks, done


def _words(queue: str, one: Settlement) -> list[Word]:
    id, number = receipt_words(one.receipt)
    kind = one.kind
    flag, body = "1", b""
    if kind == "done":
        flag, body = ("0", b"") if one.result is None else ("1", one.result)
    elif kind in ("retry", "dead"):
        flag, body = "1" if one.ran else "0", one.error
    delay = milliseconds(one.delay) if kind in ("retry", "release") else 0
    words: list[Word] = [kind, id, number, delay, reason(one.reason), flag, body, len(one.then)]
    for message in one.then:
        target = "" if message.queue == queue else message.queue
        words += [target, message.id, pack_head(message), encode_body(message)]
    return words


def reason(text: str) -> bytes:
    """Return a reason as it is stored: of limited length."""
    return text[:MAX_REASON].encode("utf-8", "replace")


def _all(answers: Iterable[list[Any]]) -> Iterator[Any]:
    for answer in answers:
        yield from answer


def _settled(answer: Any) -> Settled:
    added: tuple[bool, ...] = ()
    if isinstance(answer, list):
        answer, *words = answer
        added = tuple(isinstance(word, int) for word in words)
    word = answer.decode()
    if word[0] == "+":
        return Settled("ok", word[1:], added)
    if word[0] == "-":
        return Settled("refused", word[1:])
    return Settled(cast("Literal['lost', 'gone', 'closed']", word))
