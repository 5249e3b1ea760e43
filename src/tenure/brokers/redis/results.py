"""What became of jobs: asked for once, and told by the server when they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from tenure.broker import JobState
from tenure.brokers.redis.ends import Ends, Waiter
from tenure.brokers.redis.line import Ask, Line
from tenure.brokers.redis.scripts import STATES
from tenure.brokers.redis.settling import Retention
from tenure.brokers.redis.watching import LOOK_AGAIN, PATIENCE, Watching
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.clock import Clock
from tenure.errors import BrokerUnavailable
from tenure.retry import reconnect_delay
from tenure.wire.commands import FLOOR, OVER

IDS_PER_CALL = 500


class RedisResults:
    """The `ResultStore` of Redis.

    `patience` is the seconds for which a question is asked again where the server does not answer.
    """

    def __init__(
        self,
        line: Line,
        where: Whereabouts,
        ends: Ends,
        *,
        clock: Clock,
        roll: Callable[[], float],
        closing: threading.Event,
        patience: float,
        retention: Retention,
    ) -> None:
        self._line = line
        self._where = where
        self._ends = ends
        self._clock = clock
        self._roll = roll
        self._closing = closing
        self._patience = patience
        self._watching = Watching(self._states, ends, clock, roll, closing)
        self._rows = max(retention.result_ttl / 1000, FLOOR)

    def states(self, ids: Sequence[str]) -> list[JobState]:
        """What is known of each job now, in order; raises BrokerUnavailable."""
        return self._patiently(ids, self._patience)

    def wait(self, ids: Sequence[str], seconds: float) -> list[JobState]:
        """Wait until at least one of the jobs has ended (or is unknown), at most `seconds`; the state of each.

        Raises BrokerUnavailable when the server did not answer for half a minute, or not at all within `seconds`.
        """
        if seconds <= 0 or not ids:
            return self.states(ids)
        end = self._clock.boot() + seconds
        woken = threading.Event()
        waiter = Waiter(ids, woken.set)
        self._ends.enter(waiter)
        try:
            while True:
                woken.clear()
                left = max(0.05, end - self._clock.boot())
                states = self._patiently(ids, min(left, PATIENCE))
                left = end - self._clock.boot()
                if left <= 0 or any(state.state in OVER for state in states):
                    return states
                woken.wait(min(left, LOOK_AGAIN))
        finally:
            self._ends.leave(waiter)

    def watch(
        self, ids: Sequence[str], seconds: float | None, tell: Callable[[], None]
    ) -> tuple[Callable[[], list[JobState]], Callable[[], None]]:
        """Have `tell` called, by another thread, once `wait` would return; returns (what `wait` returns, stop).

        `stop` has to be called in the end, after `seconds` at the latest.
        """
        if self._closing.is_set():
            raise BrokerUnavailable("the broker is closed")
        return self._watching.watch(ids, tell)

    def _patiently(self, ids: Sequence[str], patience: float) -> list[JobState]:
        """Ask until there is an answer; raises BrokerUnavailable."""
        end = self._clock.boot() + patience
        failures = 0
        while True:
            if self._closing.is_set():
                raise BrokerUnavailable("the broker is closed")
            try:
                return self._states(ids)
            except ConnectionError as error:
                failures += 1
                left = end - self._clock.boot()
                if left <= 0:
                    raise BrokerUnavailable(str(error)) from error
                self._clock.wait(self._closing, min(left, reconnect_delay(failures, self._roll())))

    def _states(self, ids: Sequence[str]) -> list[JobState]:
        """Ask once, and have the ends of the jobs told where somebody listens; raises ConnectionError."""
        channel = self._ends.channel if self._ends.listening else ""
        found: dict[str, JobState] = {}
        missing = list(dict.fromkeys(ids))
        while missing:
            part = missing[:IDS_PER_CALL]
            queues = self._where.find(part)
            by_queue: dict[str, list[str]] = {}
            for id in part:
                if id in queues:
                    by_queue.setdefault(queues[id], []).append(id)
                else:
                    found[id] = self._unknown(id)
            asks = [Ask(STATES, queue, [channel, *members]) for queue, members in by_queue.items()]
            answers = self._line.ask_all(asks)[1] if asks else []
            for (queue, members), answer in zip(by_queue.items(), answers, strict=True):
                for id, state in zip(members, answer, strict=True):
                    if state == 0:
                        self._where.forget(id)
                        found[id] = self._unknown(id)
                    elif state[4] != b"later":
                        found[id] = _state(id, queue, state)
            missing = [id for id in missing if id not in found]
        return [found[id] for id in ids]

    def _unknown(self, id: str) -> JobState:
        """Never heard of, or forgotten by now: the id itself tells when it was made."""
        try:
            old = id[12] == "7" and int(id[:12], 16) / 1000 + self._rows < self._clock.wall()
        except (ValueError, IndexError):
            old = False
        return JobState(id, "expired" if old else "unknown")

    def close(self) -> None:
        """End all waits with BrokerUnavailable; the broker's `closing` is set before."""
        self._ends.close()
        self._watching.close()


def _state(id: str, queue: str, fields: Sequence[Any]) -> JobState:
    name, attempts, losses, reason, kind, body = fields
    return JobState(
        id,
        cast("Literal['unknown']", name.decode()),
        attempts,
        losses,
        reason.decode("utf-8", "replace"),
        body if kind == b"result" else None,
        body if kind == b"failure" else b"",
        body if kind == b"progress" else None,
        queue,
    )
