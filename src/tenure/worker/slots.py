"""The places in a worker process where jobs run: one thread each."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from tenure.clock import Clock
from tenure.message import Delivery, Message, Settlement
from tenure.outcome import Failed, failure_from
from tenure.settle import Policy, decide
from tenure.worker.executor import Executor
from tenure.worker.settler import Finished
from tenure.worker.table import Lease, Table

logger = logging.getLogger("tenure.worker")

SUSPECT_LOSSES = 2
"""From this many losses on a job may be what kills its process, and is kept apart from others of the kind."""

_SUSPECT_DELAY = 1.0
_FULL_PAUSE = 0.02
_ANSWER_PAUSE = 0.001


class Held(NamedTuple):
    """A delivery that is in the table, at `place`."""

    delivery: Delivery
    place: int


class Slots:
    """Runs deliveries, each in a free slot, and hands their settlements on; a slot never dies.

    `settle` takes a `Finished`.  `free` and `deliver` belong to the taker's thread.
    """

    def __init__(
        self,
        count: int,
        table: Table,
        executor: Executor,
        settle: Callable[[Finished], None],
        clock: Clock,
        grace: float,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._table = table
        self._executor = executor
        self._settle = settle
        self._clock = clock
        self._grace = grace
        self._roll = roll
        self._work: SimpleQueue[Held | None] = SimpleQueue()
        self._freed: SimpleQueue[None] = SimpleQueue()
        self._available = count
        self._draining = threading.Event()
        self._suspects: set[bytes] = set()
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"tenure-slot-{lane}", daemon=True)
            for lane in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Release what is delivered from now on, and wake the taker if it waits for a free slot."""
        self._draining.set()
        self._freed.put(None)

    def stop(self) -> None:
        """Let what runs finish, and end the threads; returns when they have ended.  No delivery may come after."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def free(self) -> int:
        """Wait until at least one slot is free and return how many jobs may be taken; 0: ask again."""
        if self._available <= 0:
            self._freed.get()
            self._available += 1
        for _ in range(self._freed.qsize()):
            self._freed.get()
            self._available += 1
        room = self._table.room()
        if not room:
            # Hundreds of settlements wait for their answers: the broker is away or slow.
            self._clock.wait(self._draining, _FULL_PAUSE)
        return min(self._available, room)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Enter the deliveries into the table and hand them to the free slots."""
        suspects: list[Held] = []
        for delivery in deliveries:
            limit = self._limit(delivery.message.timeout) if isinstance(delivery.message, Message) else 0.0
            place = self._table.hold(delivery.receipt, delivery.deadline, delivery.visibility_timeout, limit)
            if place is None:
                logger.debug("job %s is already here", delivery.receipt)
            elif self._draining.is_set():
                self._give_back(Held(delivery, place), "the worker is leaving")
            elif delivery.losses >= SUSPECT_LOSSES:
                suspects.append(Held(delivery, place))
            else:
                self._start(Held(delivery, place))
        if suspects:
            self._deliver_apart(suspects)

    def _start(self, held: Held) -> None:
        self._available -= 1
        self._work.put(held)

    def _deliver_apart(self, suspects: Sequence[Held]) -> None:
        """Let one suspect run at a time, and give the others back before it starts.

        All that a process holds when one job kills it counts a loss, and all of it is taken again together.  Kept
        apart, that job goes on alone to its end, and the others do not follow it onto the dead list.
        """
        running = bool(self._suspects)
        others = suspects if running else suspects[1:]
        for held in others:
            delay = _SUSPECT_DELAY * (0.5 + 0.5 * self._roll())
            self._give_back(held, "another job that was lost before runs here", delay)
        if running:
            return
        while any(self._table.knows(held.delivery.receipt) for held in others):
            if self._clock.wait(self._draining, _ANSWER_PAUSE):
                break
        self._suspects.add(suspects[0].delivery.receipt)
        self._start(suspects[0])

    def _limit(self, timeout: float | None) -> float:
        return 0.0 if timeout is None else self._clock.boot() + timeout + self._grace

    def _give_back(self, held: Held, reason: str, delay: float = 0.0) -> None:
        self._hand_on(held, Settlement(held.delivery.receipt, "release", delay=delay, reason=reason), 0.0)

    def _run(self, lane: int) -> None:
        while (held := self._work.get()) is not None:
            try:
                self._process(lane, held)
            except BaseException as error:  # noqa: BLE001  (a slot never dies)
                self._rescue(held, error)
            self._suspects.discard(held.delivery.receipt)
            self._freed.put(None)
            held = None  # the job's arguments are not kept until the next one comes

    def _process(self, lane: int, held: Held) -> None:
        delivery = held.delivery
        lease = Lease(self._table, held.place, delivery.receipt)
        started_at = self._clock.boot()
        deadline = lease.deadline()
        if deadline is None or deadline <= started_at:
            # The server takes it back, or has done so: another worker may run it already.
            logger.debug("job %s came too late to be started", delivery.receipt)
            self._table.drop(held.place)
            return
        self._table.begin(lane)
        outcome, policy = self._executor.execute(delivery, lease)
        settlement = decide(outcome, delivery, policy, self._clock.wall(), self._roll())
        self._hand_on(held, settlement, self._clock.boot() - started_at)

    def _hand_on(self, held: Held, settlement: Settlement, seconds: float) -> None:
        delivery = held.delivery
        self._table.settling(held.place, settlement.kind)
        for_hooks = delivery if settlement.kind == "dead" else None
        self._settle(Finished(held.place, settlement, delivery.message.task, delivery.attempt, seconds, for_hooks))

    def _rescue(self, held: Held, error: BaseException) -> None:
        """Something around the function failed, or an exception was thrown into the thread from outside."""
        logger.error("an unexpected error around a job", exc_info=error)
        delivery = held.delivery
        try:
            if not self._table.holds(delivery.receipt):
                return  # its settlement is on its way already
            outcome = Failed(failure_from(error))
            policy = Policy(delivery.message.max_attempts) if isinstance(delivery.message, Message) else Policy()
            settlement = decide(outcome, delivery, policy, self._clock.wall(), self._roll())
            self._hand_on(held, settlement, 0.0)
        except BaseException:
            logger.exception("a job could not be settled; it comes back when its lease runs out")
