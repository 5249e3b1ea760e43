"""What extends and ends leases of other processes' sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tenure.broker import EndedAs, Extend, Extended, Settled
from tenure.brokers.redis import settling
from tenure.brokers.redis.line import Ask, OwnLine
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import BYE, EXTEND, UNTAKE
from tenure.brokers.redis.settling import Retention, receipt_id, receipt_words
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.clock import own_deadline
from tenure.engine.states import H_LEFT, H_LOST, HOW_NAMES
from tenure.message import Settlement

_MARKS: tuple[Literal["ask", "terminate"] | None, ...] = (None, "ask", "terminate")


class RedisKeeper:
    """Extends and ends leases; a receipt does not name its queue, which is looked up once a job."""

    def __init__(self, line: OwnLine, retention: Retention) -> None:
        self._line = line
        self._retention = retention
        self._where = Whereabouts(line)

    def extend(self, items: Sequence[Extend]) -> list[Extended]:
        """Extend each receipt's lease; raises ConnectionError when there was no complete answer."""
        out = [Extended(None)] * len(items)
        by_queue = self._by_queue([item.receipt for item in items])
        asks = [self._extend_ask(queue, [items[place] for place in places]) for queue, places in by_queue.items()]
        if not asks:
            return out
        sent_at, answers = self._line.ask_all(asks)
        for places, answer in zip(by_queue.values(), answers, strict=True):
            for place, hold, mark in zip(places, answer[::2], answer[1::2], strict=True):
                if hold >= 0:
                    out[place] = Extended(own_deadline(sent_at, hold / 1000), _MARKS[mark])
        return out

    def _by_queue(self, receipts: Sequence[bytes]) -> dict[str, list[int]]:
        """Return the places of receipts by their queues; those that are known nowhere are left out."""
        queues = self._where.find(receipt_id(receipt) for receipt in receipts)
        by_queue: dict[str, list[int]] = {}
        for place, receipt in enumerate(receipts):
            queue = queues.get(receipt_id(receipt))
            if queue is not None:
                by_queue.setdefault(queue, []).append(place)
        return by_queue

    def _extend_ask(self, queue: str, items: Sequence[Extend]) -> Ask:
        words: list[Word] = []
        for item in items:
            id, number = receipt_words(item.receipt)
            words += [id, number, "" if item.progress is None else "1", item.progress or b""]
        return Ask(EXTEND, queue, words)

    def settle(self, session: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle for a child of that session that was stopped, before its `bye`; raises as the consumer's does."""
        return settling.settle(self._line, self._where, settlements, session, self._retention, mine_only=True)

    def bye(self, session: str, end: Literal["left", "lost"], cause: str, settling: Sequence[bytes]) -> list[EndedAs]:
        """Give back all that the session still holds; returns how each receipt in `settling` had ended."""
        by_queue = self._by_queue(settling)
        how = H_LEFT if end == "left" else H_LOST
        out = [EndedAs("unknown")] * len(settling)
        queues = self._where.queues()
        asks = []
        for queue in queues:
            words: list[Word] = [session, how, _cause(cause)]
            for place in by_queue.get(queue, ()):
                words += receipt_words(settling[place])
            asks.append(Ask(BYE, queue, words))
        answers = self._line.ask_all(asks)[1] if asks else []
        for queue, answer in zip(queues, answers, strict=True):
            for place, ended, late in zip(by_queue.get(queue, ()), answer[::2], answer[1::2], strict=True):
                if ended:
                    out[place] = EndedAs(HOW_NAMES[ended], bool(late))
        return out

    def untake(self, session: str, number: int, cause: str, held: Sequence[bytes]) -> None:
        """Give back what a session's take was given, but for what is held; raises ConnectionError."""
        words: list[Word] = [session, number, _cause(cause), *held]
        asks = [Ask(UNTAKE, queue, words) for queue in self._where.queues()]
        if asks:
            self._line.ask_all(asks)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def _cause(text: str) -> bytes:
    return settling.reason(text)
