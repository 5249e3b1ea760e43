"""A worker process's two lines: one to take, one to settle, used from different threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tenure.broker import Settled
from tenure.brokers.redis import settling
from tenure.brokers.redis.deliveries import deliveries
from tenure.brokers.redis.handing_over import hand_over_the_rest
from tenure.brokers.redis.layout import QUEUES
from tenure.brokers.redis.line import WRITE_ERRORS, OwnLine
from tenure.brokers.redis.resp import Word
from tenure.brokers.redis.scripts import TAKE
from tenure.brokers.redis.settling import Retention
from tenure.brokers.redis.waking import Waking
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.clock import RHO, Clock
from tenure.errors import ServerError
from tenure.message import Delivery, Settlement
from tenure.wire.commands import MAX_TAKE
from tenure.wire.encode import milliseconds

TAKE_BYTES = 4 * 1024 * 1024
"""Bytes of bodies above which an answer gets no further job."""


@dataclass
class _Take:
    """A take that has not been answered in full; `broke`: some of its calls may have been carried out unread."""

    number: int
    limit: int
    wait: float
    queues: tuple[str, ...]
    broke: bool = False
    next_due: float | None = None
    found: list[Delivery] = field(default_factory=list)
    outgoing: list[str] = field(default_factory=list)


class RedisConsumer:
    """Takes and settles for one session; `visibility_timeout` is seconds."""

    def __init__(
        self,
        taking: OwnLine,
        settling: OwnLine,
        waking: Waking,
        queues: Sequence[str],
        *,
        session: str,
        name: str,
        visibility_timeout: float,
        retention: Retention,
        clock: Clock,
    ) -> None:
        self._taking = taking
        self._settling = settling
        self._waking = waking
        self._queues = tuple(dict.fromkeys(queues))
        self._session = session
        self._name = name
        self._vt = max(1, milliseconds(visibility_timeout))
        self._retention = retention
        self._boot = clock.boot
        self._where = Whereabouts(settling)
        self._turn = 0
        self._entered: set[str] = set()
        self._told: dict[str, tuple[float, int]] = {}
        """For each queue when it was asked last without a wait, and the server's time (ms) in its answer."""
        self._pending: _Take | None = None
        self.number = 1

    def take(self, limit: int, wait: float, queues: Sequence[str] | None = None) -> list[Delivery]:
        """Take up to `limit` jobs, waiting up to `wait` seconds for the first, from `queues` (None: from all).

        After a ConnectionError the next call asks the same queues with the same number again, whatever it is asked
        for: each of them repeats what it had handed out, and hands out nothing with that number later.
        Raises ServerError for a session that was said bye to.
        """
        take = self._pending
        if take is None:
            names = self._queues if queues is None else tuple(dict.fromkeys(queues))
            take = self._pending = _Take(self.number, min(limit, MAX_TAKE), wait, self._in_turn(names))
        end = self._boot() + take.wait
        self._look(take)
        while not take.found and not take.broke and (left := end - self._boot()) > 0:
            self._wait_and_look(take, left)
        self._pending = None
        self.number += 1
        if take.outgoing:
            self._hand_over(take.outgoing)
        for delivery in take.found:
            self._where.note(delivery.message.id, delivery.message.queue)
        return take.found

    def _hand_over(self, queues: Sequence[str]) -> None:
        """Help on what was left behind in these queues by somebody who settled there."""
        with suppress(ConnectionError):  # it is tried again with the next take
            for queue in queues:
                hand_over_the_rest(self._taking, queue)

    def _in_turn(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        """Begin with another queue each time."""
        if len(queues) < 2:
            return queues
        self._turn += 1
        first = self._turn % len(queues)
        return queues[first:] + queues[:first]

    def _look(self, take: _Take) -> None:
        """Ask the queues one after the other until there is enough; raises ConnectionError."""
        take.found, take.outgoing, take.next_due = [], [], None
        try:
            self._enter(take.queues)
            for place, queue in enumerate(take.queues):
                left = take.limit - len(take.found)
                if not left and not take.broke:
                    break
                others = len(take.queues) - place
                self._ask(take, queue, -(-left // others))
        except ConnectionError:
            take.broke = True
            raise

    def _enter(self, queues: Sequence[str]) -> None:
        """Have the queues known before they are asked for the first time: a `bye` goes to all that are known."""
        if self._entered.issuperset(queues):
            return
        try:
            self._taking.command("SADD", QUEUES, *queues, key=QUEUES)
        except ServerError as error:
            if error.code not in WRITE_ERRORS:
                raise
        else:
            self._entered.update(queues)

    def _ask(self, take: _Take, queue: str, limit: int) -> None:
        sent_at, answer = self._taking.ask(TAKE, queue, self._words(take, limit))
        self._told[queue] = sent_at, answer[1] if len(answer) > 1 else 0
        self._read(take, queue, sent_at, answer)

    def _words(self, take: _Take, limit: int, woken: bool = False) -> list[Word]:
        return [
            self._session,
            self._name,
            take.number,
            limit,
            self._vt,
            TAKE_BYTES,
            "repeat" if take.broke else "woken" if woken else "",
            milliseconds(take.wait),
            int(self._waking.by_channel),
        ]

    def _read(self, take: _Take, queue: str, sent_at: float, answer: list[Any]) -> None:
        """Read what a queue has answered; `sent_at` is a moment (boot clock) that is not after the answer was made."""
        if answer[0] == b"closed":
            self._pending = None
            raise ServerError("closed", "this session was said bye to")
        if answer[0] == b"stale":
            raise ConnectionError(f"take {take.number} is older than one that was answered")
        next_due, now, outgoing, *jobs = answer
        take.outgoing += [queue] * bool(outgoing)
        if next_due >= 0:
            due = next_due / 1000
            take.next_due = due if take.next_due is None else min(due, take.next_due)
        take.found += deliveries(queue, sent_at, now, jobs)

    def _wait_and_look(self, take: _Take, left: float) -> None:
        """Wait until there may be something to take, at most `left` seconds, and look; raises ConnectionError."""
        seconds = left if take.next_due is None else min(left, take.next_due + 0.001)
        if len(take.queues) == 1:
            self._wait_at(take, take.queues[0], seconds)
            return
        try:
            woken = self._waking.sleep(take.queues, seconds)
        except ConnectionError:
            self._pending = None  # all that was asked is answered: nothing is to be repeated
            raise
        if woken is not None and woken != take.queues[0]:
            take.queues = (woken, *(queue for queue in take.queues if queue != woken))
        self._look(take)

    def _wait_at(self, take: _Take, queue: str, seconds: float) -> None:
        """Have the only queue look as soon as there may be something, which spares the way there and back."""
        take.next_due = None
        try:
            sent_at, answer = self._taking.ask_when_woken(TAKE, queue, self._words(take, take.limit, True), seconds)
            if len(answer) > 1:
                sent_at = self._since(queue, sent_at, answer[1])
            self._read(take, queue, sent_at, answer)
        except ConnectionError:
            take.broke = True
            raise

    def _since(self, queue: str, sent_at: float, now: int) -> float:
        """Return a moment that is not after the server's time was `now` (ms), and is as late as can be.

        A lease begins when the wait is over, not when it was asked for: so much later by the server's clock as an
        earlier look, which did not wait, was before this one.
        """
        earlier_sent_at, earlier_now = self._told[queue]
        later = earlier_sent_at + (now - earlier_now - 1) / 1000 * (1 - RHO)
        return min(max(sent_at, later), self._boot())

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Send the settlements and return the answers in the same order.

        Raises ConnectionError when there was no complete answer or the server could not write: call again with the
        same ones.
        """
        answers = settling.settle(
            self._settling, self._where, settlements, self._session, self._retention, mine_only=False
        )
        for one in settlements:
            self._where.forget(settling.receipt_id(one.receipt))
        return answers

    def interrupt(self) -> None:
        """End a `take` that waits in another thread with a ConnectionError."""
        self._waking.interrupt()
        self._taking.link.interrupt()

    def close(self) -> None:
        """Close the lines; a `take` or `settle` that waits raises ConnectionError."""
        self._waking.close()
        self._taking.close()
        self._settling.close()
