"""The places in a worker process where jobs run: a thread for each plain function, one event loop for coroutines."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from tenure.clock import Clock
from tenure.message import Delivery, Message, Settlement
from tenure.outcome import Failed, Outcome, Returned, TimedOut, failure_from
from tenure.settle import Policy, decide, unheard
from tenure.worker.admission import Admission
from tenure.worker.crew import Crew, Take
from tenure.worker.executor import Executor
from tenure.worker.lease import Lease
from tenure.worker.room import ASYNC, PAIR, SYNC
from tenure.worker.settler import Finished, finished
from tenure.worker.table import Table
from tenure.worker.unread import NOT_LISTENING

if TYPE_CHECKING:
    from tenure.worker.loop import Loop, Start

logger = logging.getLogger("tenure.worker")

SUSPECT_LOSSES = 2
"""From this many losses on a job may be what kills its process, and is kept apart from others of the kind."""

_SUSPECT_DELAY = 1.0
_LATE_DELAY = 0.5
_ANSWER_PAUSE = 0.001


class Held(NamedTuple):
    """A delivery that is in the table, at `place`; `kind` is that of the slot it needs."""

    delivery: Delivery
    place: int
    kind: int = SYNC


class Slots:
    """Runs deliveries, each in a free slot, and hands their settlements on; a slot never dies.

    Where a function goes on after its time limit, its slot goes to other jobs, and it has none from then on.

    `settle` takes a `Finished`.  `free` and `deliver` belong to the taker's thread.  `count` are the threads;
    `coroutines` are the places in `loop`, where there is one.  `queues` says which kinds each queue's jobs need.
    `alone`: there is one slot of each kind and one job at a time, and the supervisor ends the process for an overrun.
    """

    def __init__(
        self,
        count: int,
        table: Table,
        executor: Executor,
        settle: Callable[[Finished], None],
        clock: Clock,
        roll: Callable[[], float] = random.random,
        *,
        loop: Loop | None = None,
        coroutines: int = 0,
        queues: Mapping[str, frozenset[int]] | None = None,
        alone: bool = False,
    ) -> None:
        self._table = table
        self._executor = executor
        self._settle = settle
        self._clock = clock
        self._roll = roll
        self._counts = (count, coroutines)
        self._alone = alone
        self._loop = loop
        self._draining = threading.Event()
        self._admission = Admission(self._counts, queues or {}, table, clock, self._draining, self._put_back, alone)
        self._freed = self._admission.freed
        self.free = self._admission.room
        self._interrupted = False
        self._suspects: set[bytes] = set()
        self._crew = Crew(count, self._run, partial(self._freed, SYNC))
        self._overrun_coroutines: set[bytes] = set()
        self._replace_in = [partial(self._replace, lane) for lane in range(count + 1)]
        table.surroundings.idle = self._idle

    def start(self, take: Take[Held] | None = None) -> None:
        """Start the threads, and have one of them `take`, unless another thread does and calls `deliver`."""
        self._crew.start(take)

    def drain(self) -> None:
        """Release what is delivered from now on or was not started, and wake the taker if it waits for a free slot."""
        self._draining.set()
        self._table.surroundings.stopping = True
        self._admission.wake()
        self._put_back(self._crew.waiting())

    def finish_taking(self) -> None:
        """Return when no delivery can come any more; after `drain` and the stop of what takes."""
        self._crew.finish_taking()

    def interrupt(self) -> None:
        """Cancel the coroutines that run; their jobs are given back.  A thread cannot be interrupted."""
        self._interrupted = True
        if self._loop is not None:
            self._loop.cancel()

    def stop(self) -> None:
        """Let what runs finish, and end the threads; returns when they have ended.  No delivery may come after."""
        self._crew.stop()
        if self._loop is not None:
            self._loop.finish()

    def _idle(self, task: str | None, queue: str | None) -> bool:
        """Whether a job of `task` (None: of any) in `queue` can be taken, here or by another process of the worker.

        It asks what `FreeSlots.room` asks: a queue is taken from only while all kinds are free that it needs.  What
        this worker does not run or serve is not its to tell: others may.
        """
        kinds = frozenset[int]()
        if task is not None:
            home = self._executor.home(task)
            if home is None:
                return True
            kinds = frozenset({home[0]})
            queue = queue or home[1]
        needs = self._admission.slots.needs(queue)
        return not needs or any(self._has_free(kinds | those) for those in needs)

    def _has_free(self, kinds: frozenset[int]) -> bool:
        """Whether a slot of each of these kinds is free in this process, or in one other."""
        table = self._table
        busy = self._alone and any(table.held(kind) for kind in (SYNC, ASYNC))
        if not busy and all(self._counts[kind] > table.held(kind) for kind in kinds):
            return True
        return table.free_elsewhere(PAIR if len(kinds) > 1 else next(iter(kinds))) > 0

    def deliver(self, deliveries: Sequence[Delivery]) -> Held | None:
        """Enter the deliveries into the table, all before the first one starts, and hand them to the free slots.

        What is returned is for the thread that takes to run by itself: a single job, when a slot was free for it.
        """
        suspects: list[Held] = []
        coroutines: list[Held] = []
        plain: list[Held] = []
        entered = [held for held in map(self._hold, deliveries) if held is not None]
        revoked = self._table.take.is_revoked()
        for held in entered:
            if revoked:
                self._give_back(held, NOT_LISTENING)
            elif self._draining.is_set():
                self._give_back(held, "the worker is leaving")
            elif self._admission.slots.is_surprised_by(held.delivery.message.queue, held.kind):
                self._give_back(held, "no slot of its kind is free")
            elif held.delivery.losses >= SUSPECT_LOSSES:
                suspects.append(held)
            else:
                self._admission.took(held.kind)
                (plain if held.kind == SYNC else coroutines).append(held)
        if coroutines and self._loop is not None:
            self._loop.spawn([self._start_of(held) for held in coroutines])
        if suspects:
            self._deliver_apart(suspects)
        if len(plain) == 1 and self._crew.takes and not self._admission.slots.in_hand:
            return plain[0]
        for held in plain:
            self._crew.put(held)
        return None

    def _hold(self, delivery: Delivery) -> Held | None:
        """Enter a delivery into the table; None when it is there already: it runs or ran, or there is no room."""
        kind = ASYNC if self._loop is not None and self._executor.is_async(delivery) else SYNC
        place = self._table.hold(delivery.receipt, delivery.deadline, delivery.visibility_timeout, kind)
        return None if place is None else Held(delivery, place, kind)

    def _start(self, held: Held) -> None:
        self._admission.took(held.kind)
        if held.kind == SYNC or self._loop is None:
            self._crew.put(held)
        else:
            self._loop.spawn([self._start_of(held)])

    def _start_of(self, held: Held) -> Start:
        from tenure.worker.loop import Start  # where there is a loop, it is loaded

        return Start(self._run_async(held), partial(self._ended_async, held))

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

    def _give_back(self, held: Held, reason: str, delay: float = 0.0) -> None:
        self._hand_on(held, Settlement(held.delivery.receipt, "release", delay=delay, reason=reason), 0.0)

    def _put_back(self, count: int) -> None:
        """Give back up to `count` jobs that wait for a slot, and count them as ended; from any thread."""
        for _ in range(count):
            held = self._crew.pull()
            if held is None:
                return
            self._suspects.discard(held.delivery.receipt)
            self._give_back(held, "the jobs before it take longer")
            self._freed(held.kind)

    def _run(self, lane: int, held: Held) -> None:
        try:
            self._process(lane, held)
        except BaseException as error:  # noqa: BLE001  (a slot never dies)
            self._rescue(held, error)
        self._suspects.discard(held.delivery.receipt)

    async def _run_async(self, held: Held) -> None:
        try:
            await self._process_async(held)
        except BaseException as error:  # noqa: BLE001  (the loop never dies either)
            self._rescue(held, error)

    def _ended_async(self, held: Held) -> None:
        """Free the slot of a coroutine, in the loop; settle its job if it was cancelled before its first step."""
        if self._table.holds(held.delivery.receipt):
            try:
                self._cut_off(held)
            except BaseException as error:  # noqa: BLE001  (the loop never dies)
                self._rescue(held, error)
        self._suspects.discard(held.delivery.receipt)
        if held.delivery.receipt in self._overrun_coroutines:
            self._overrun_coroutines.discard(held.delivery.receipt)
        else:
            self._freed(ASYNC)

    def _replace(self, lane: int, receipt: bytes) -> bool:
        """Give the slot of a function that has overrun to other jobs (in the thread that has ended it)."""
        if self._alone:
            return False
        if lane == self._counts[SYNC]:
            self._overrun_coroutines.add(receipt)
            self._freed(ASYNC)
        elif self._crew.replace(lane):
            self._freed(SYNC)
        else:
            return False
        logger.warning("job %s goes on after it was ended; its slot goes to other jobs", receipt[:32].decode())
        return True

    def _cut_off(self, held: Held) -> None:
        from asyncio import CancelledError

        now = self._clock.boot()
        if self._begin(self._counts[SYNC], held, now) is not None:
            error = CancelledError("cancelled before its first step")
            self._end_async(held, *self._executor.cut_off(held.delivery, error), now)

    def _process(self, lane: int, held: Held) -> None:
        started_at = self._clock.boot()
        lease = self._begin(lane, held, started_at)
        if lease is not None:
            outcome, policy = self._executor.execute(held.delivery, lease)
            self._end(held, outcome, policy, started_at)

    async def _process_async(self, held: Held) -> None:
        started_at = self._clock.boot()
        lease = self._begin(self._counts[SYNC], held, started_at)
        if lease is None:
            return
        outcome, policy = await self._executor.execute_async(held.delivery, lease)
        self._end_async(held, outcome, policy, started_at)

    def _end_async(self, held: Held, outcome: Outcome, policy: Policy, started_at: float) -> None:
        if self._interrupted and not isinstance(outcome, Returned | TimedOut):
            # It was cancelled because the worker leaves, which is no fault of the job.
            self._give_back(held, "the worker is leaving")
        else:
            self._end(held, outcome, policy, started_at)

    def _begin(self, lane: int, held: Held, now: float) -> Lease | None:
        """Return the lease on what is to be started now; None when that is too late."""
        limit = self._limit(held.delivery, now)
        receipt = held.delivery.receipt
        lease = Lease(self._table, held.place, receipt, self._clock.boot, limit, self._replace_in[lane])
        deadline = lease.deadline()
        if deadline is None or deadline <= now:
            # The server takes it back, or has done so: another worker may run it already.
            logger.debug("job %s came too late to be started", receipt)
            self._table.drop(held.place)
            return None
        start_by = held.delivery.start_by
        if start_by is not None and start_by <= now:
            # This process stood still.  The server, by its own clock, is the one to say that the job has expired.
            self._give_back(held, "it could not start in time", _LATE_DELAY)
            return None
        if limit != inf:
            self._bequeath(held, limit)
        self._table.begin(lane)
        return lease

    def _limit(self, delivery: Delivery, now: float) -> float:
        """Return when the time limit of a job that starts now is over."""
        message = delivery.message
        timeout = message.timeout if type(message) is Message else None
        return inf if timeout is None else now + timeout

    def _bequeath(self, held: Held, limit: float) -> None:
        """Leave word of what the supervisor is to send if it has to end this process because of this job."""
        message = held.delivery.message
        if isinstance(message, Message) and message.timeout is not None:
            policy = self._executor.policy_of(message)
            will = decide(unheard(message.timeout, policy), held.delivery, policy, self._clock.wall(), self._roll())
            self._table.wills.write(held.place, held.delivery.receipt, limit, will)

    def _end(self, held: Held, outcome: Outcome, policy: Policy, started_at: float) -> None:
        settlement = decide(outcome, held.delivery, policy, self._clock.wall(), self._roll())
        self._hand_on(held, settlement, self._clock.boot() - started_at)

    def _hand_on(self, held: Held, settlement: Settlement, seconds: float) -> None:
        self._admission.ended(held.delivery.receipt, seconds)
        self._table.settling(held.place, settlement.kind)
        self._settle(finished(held.delivery, held.place, settlement, seconds))

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
