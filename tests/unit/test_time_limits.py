"""Time limits: how a function ends whose limit is over, what is said of its hand-out, and where its slot goes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from math import inf
from queue import SimpleQueue
from typing import Any

import pytest

from tenure import App, ConfigError, Discard, JobContext, Retry, TaskDefinitionError, Terminated, TimeLimitExceeded
from tenure.codec import decode_body, encode_body, unpack_failure
from tenure.message import Delivery, Settlement
from tenure.outcome import Died, Discarded, Outcome, Retried, Returned, TimedOut
from tenure.retry import Backoff
from tenure.settle import TERMINATED, Policy, decide, timed_out
from tenure.worker.executor import Executor
from tenure.worker.interrupts import OVERRUN_AFTER, Interrupts
from tenure.worker.loop import Loop
from tenure.worker.settler import Finished
from tenure.worker.slots import Slots
from tenure.worker.table import HELD, OVERRUN, Table
from tests.unit.worker_fakes import HandClock, WatchedHold, delivery, execute, look, message, receipt

app = App("shop")
LIMIT = "timeout: it ran longer than its time limit of 60 s"
KIND = "tenure.errors.TimeLimitExceeded"
ASKED = {"Retry": Retry(7, "in the same moment"), "Discard": Discard("not wanted"), "OSError": OSError("closed")}


class Limited(WatchedHold):
    """A hold whose time limit is over a minute after the start; `late` lets it pass and has the watcher look."""

    def __init__(self, deadline: float = 2000.0) -> None:
        super().__init__()
        self.until = deadline
        self.overruns = 0
        self.is_terminated = False

    def deadline(self) -> float | None:
        return self.until

    def limit(self) -> float:
        return 1060.0

    def terminated(self) -> bool:
        return self.is_terminated

    def terminated_at(self) -> float:
        return 1060.0 if self.is_terminated else inf

    def overrun(self) -> None:
        self.overruns += 1

    def late(self, seconds: float = 0.0) -> None:
        self.clock.now = 1060.0 + seconds
        look(self.watcher)


def late(context: JobContext, seconds: float = 0.0) -> None:
    assert isinstance(context.hold, Limited)
    context.hold.late(seconds)


@app.task(name="works")
def works(ctx: JobContext, after: str = "") -> str:
    try:
        late(ctx)
    finally:
        if after:
            raise ASKED[after]
    return "finished"


@app.task(name="swallows")
def swallows(ctx: JobContext) -> str:
    try:
        late(ctx)
    except TimeLimitExceeded:
        return "half of it"
    return "finished"


@app.task(name="goes_on")
def goes_on(ctx: JobContext) -> str:
    try:
        late(ctx)
    except TimeLimitExceeded:
        late(ctx, OVERRUN_AFTER - 0.01)
        late(ctx, OVERRUN_AFTER)
    return "finished"


@app.task(name="awaits")
async def awaits(ctx: JobContext, after: str = "") -> str:
    late(ctx)
    try:
        await asyncio.sleep(60)
    finally:
        if after:
            raise ASKED[after]
    return "finished"


@app.task(name="blocks_the_loop")
async def blocks_the_loop(ctx: JobContext) -> str:
    late(ctx)
    late(ctx, OVERRUN_AFTER)
    return "finished"


@app.task(name="unseen")
def unseen(ctx: JobContext, seconds: float) -> str:
    """End so long after the limit, while the watcher had no turn to see that."""
    assert isinstance(ctx.hold, Limited)
    ctx.hold.clock.now = 1060.0 + seconds
    return "finished"


@app.task(name="unseen_coroutine")
async def unseen_coroutine(ctx: JobContext, seconds: float) -> str:
    assert isinstance(ctx.hold, Limited)
    ctx.hold.clock.now = 1060.0 + seconds
    return "finished"


def run(task: str, *args: Any, hold: Limited | None = None) -> tuple[Outcome, Policy]:
    return execute(app, delivery(message=message(task, args=args, timeout=60.0)), hold or Limited())


# ------------------------------------------------------------------------------------------------------- the option


def test_a_limit_travels_with_the_job() -> None:
    task = app.task(name="limited", timeout=timedelta(minutes=1))(len)
    assert task.message(("x",), {}, task.s("x").call_options).timeout == 60.0
    call = task.s("x").options(timeout=2)
    sent = task.message(call.args, call.kwargs, call.call_options)
    assert (sent.timeout, decode_body(encode_body(sent)).timeout) == (2.0, 2.0)
    plain = app.task(name="unlimited")(len)
    assert plain.message(("x",), {}, plain.s("x").call_options).timeout is None


@pytest.mark.parametrize("value", [0, -1, 0.01, float("nan"), 8 * 86_400, timedelta(days=8)])
def test_a_limit_that_cannot_be_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"timeout=.* is not possible: give 0.05 to 604800 seconds"):
        works.options(timeout=value)
    with pytest.raises(TaskDefinitionError, match=r"@app.task: timeout=.* is not possible"):
        app.task(name="never", timeout=value)(len)


# ------------------------------------------------------------------------------------------- how a function ends


@pytest.mark.parametrize("task", ["works", "awaits", "swallows", "goes_on", "blocks_the_loop"])
def test_it_counts_as_over_its_limit_whatever_it_does_after(task: str) -> None:
    outcome, _ = run(task)
    assert isinstance(outcome, TimedOut)
    assert (outcome.failure.kind, outcome.failure.text) == (KIND, LIMIT.partition(": ")[2])


@pytest.mark.parametrize("task", ["unseen", "unseen_coroutine"])
@pytest.mark.parametrize(("seconds", "kind"), [(OVERRUN_AFTER - 0.01, Returned), (OVERRUN_AFTER, TimedOut)])
def test_a_result_that_comes_long_after_the_limit_counts_for_nothing_though_nobody_saw_it_pass(
    task: str, seconds: float, kind: type[Outcome]
) -> None:
    assert isinstance(run(task, seconds)[0], kind)


@pytest.mark.parametrize("task", ["unseen", "unseen_coroutine"])
def test_nor_does_one_that_comes_long_after_the_job_was_terminated(task: str) -> None:
    hold = Limited()
    hold.is_terminated = True
    assert isinstance(run(task, OVERRUN_AFTER, hold=hold)[0], Discarded)


@pytest.mark.parametrize("task", ["works", "awaits"])
def test_the_failure_tells_where_it_was(task: str) -> None:
    outcome, _ = run(task)
    assert isinstance(outcome, TimedOut)
    assert f"in {task}" in outcome.failure.traceback


@pytest.mark.parametrize("task", ["works", "awaits"])
def test_an_error_of_its_clean_up_is_told_beside_it(task: str) -> None:
    outcome, _ = run(task, "OSError")
    assert isinstance(outcome, TimedOut)
    assert outcome.failure.kind == KIND
    assert ("context", "OSError", "closed") in [(link.how, link.kind, link.text) for link in outcome.failure.chain]


@pytest.mark.parametrize(("after", "kind"), [("Retry", Retried), ("Discard", Discarded)])
@pytest.mark.parametrize("task", ["works", "awaits"])
def test_what_the_task_asks_for_is_heard_all_the_same(task: str, after: str, kind: type[Outcome]) -> None:
    assert isinstance(run(task, after)[0], kind)


@pytest.mark.parametrize(("task", "overruns"), [("works", 0), ("goes_on", 1), ("blocks_the_loop", 1), ("awaits", 0)])
def test_one_that_goes_on_half_a_second_later_has_overrun(task: str, overruns: int) -> None:
    hold = Limited()
    run(task, hold=hold)
    assert hold.overruns == overruns


def test_a_lease_that_ends_before_is_what_it_is_ended_by() -> None:
    outcome, _ = run("works", hold=Limited(deadline=1059.0))
    assert not isinstance(outcome, TimedOut)


# --------------------------------------------------------------------------------------------- one that is terminated


def cancel(context: JobContext) -> None:
    """Let somebody cancel the job for good, and the worker be told of it."""
    hold = context.hold
    assert isinstance(hold, Limited)
    hold.is_terminated = True
    hold.watcher.look()
    look(hold.watcher)


@app.task(name="ends", on_lease_lost="finish")
def ends(ctx: JobContext, how: str) -> str:
    try:
        cancel(ctx)
    except Terminated:
        if how == "returns":
            return "half of it"
        if how != "lets it through":
            raise ASKED[how] from None
        raise
    return "finished"


@app.task(name="ends_in_the_loop")
async def ends_in_the_loop(ctx: JobContext, how: str) -> str:
    cancel(ctx)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if how == "returns":
            return "half of it"
        if how != "lets it through":
            raise ASKED[how] from None
        raise
    return "finished"


@pytest.mark.parametrize("how", ["lets it through", "returns", "OSError"])
@pytest.mark.parametrize("task", ["ends", "ends_in_the_loop"])
def test_one_that_is_terminated_is_cancelled_whatever_it_does_after(task: str, how: str) -> None:
    assert run(task, how) == (Discarded(TERMINATED), Policy())


def test_one_that_is_terminated_has_no_slot_when_it_goes_on(rig: Rig) -> None:
    item = rig.give(0, "stuck", None)
    begun(1)
    (entry,) = rig.table.entries()
    rig.clock.now = 1010.0
    rig.table.wills.terminate(entry.place, entry.tag, 1010.0)
    rig.watcher.look()
    rig.at(1010.0)
    rig.at(1010.0 + OVERRUN_AFTER)
    (entry,) = rig.table.entries()
    assert (entry.kind, entry.limit) == (OVERRUN, 1010.0)
    assert rig.slots.free().limit == 2
    assert rig.table.wills.read(entry.place, item.receipt) == Settlement(item.receipt, "cancel", reason=TERMINATED)
    _gates[0].set()
    settled = rig.settled.get(timeout=10)
    assert (settled.kind, settled.reason) == ("cancel", TERMINATED)


def test_who_is_told_again_to_terminate_a_job_counts_from_the_first_time() -> None:
    table = Table.create(1, shared=False)
    assert table.hold(receipt(), 2000.0, 30.0) is not None
    (entry,) = table.entries()
    table.wills.terminate(entry.place, entry.tag, 1010.0)
    table.wills.terminate(entry.place, entry.tag, 1020.0)
    table.wills.write(entry.place, receipt(), 1015.0, Settlement(receipt(), "retry"))
    assert [one.limit for one in table.entries()] == [1010.0]
    table.drop(entry.place)
    assert table.hold(receipt(2), 2000.0, 30.0) == entry.place
    assert [one.limit for one in table.entries()] == [float("inf")]


# ------------------------------------------------------------------------------------------------ what is said of it


def test_it_is_a_retry_by_the_backoff_that_counts_as_an_attempt() -> None:
    policy = Policy(3, backoff=Backoff(base=8.0))
    settlement = decide(timed_out(60.0, policy), delivery(attempt=2), policy, 0.0, 1.0)
    assert (settlement.kind, settlement.delay, settlement.reason) == ("retry", 16.0, LIMIT)
    assert unpack_failure(settlement.error).kind == KIND


def test_out_of_attempts_the_job_is_dead() -> None:
    settlement = decide(timed_out(60.0, Policy(3)), delivery(attempt=3), Policy(3), 0.0, 1.0)
    assert (settlement.kind, settlement.reason) == ("dead", f"gave up after 3 attempts: {LIMIT}")


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(give_up_on=(TimeLimitExceeded,)), "it is in give_up_on"),
        (Policy(retry_on=(OSError,)), "it is not in retry_on"),
    ],
)
def test_what_a_task_says_of_exceptions_holds_for_it(policy: Policy, why: str) -> None:
    outcome = timed_out(60.0, policy)
    assert isinstance(outcome, Died)
    assert outcome.reason == f"not to be tried again ({why}): {LIMIT}"
    assert isinstance(timed_out(60.0, Policy(retry_on=(OSError, TimeLimitExceeded))), TimedOut)


# ------------------------------------------------------------------------------------------------------ its slot


class Rig:
    """Slots whose functions wait until they are let go, and whose clock is moved by hand."""

    def __init__(self, threads: int, coroutines: int = 0) -> None:
        self.clock = HandClock()
        self.watcher = Interrupts(self.clock)
        self.watcher.start()
        self.settled: SimpleQueue[Settlement] = SimpleQueue()
        self.table = Table.create(threads + coroutines, shared=False)
        self.loop = Loop() if coroutines else None
        if self.loop is not None:
            self.loop.start()
        executor = Executor(app.tasks, self.clock.boot, 1000, self.watcher)
        self.slots = Slots(
            threads, self.table, executor, self._settle, self.clock, lambda: 1.0, loop=self.loop, coroutines=coroutines
        )
        self.slots.start()

    def _settle(self, finished: Finished) -> None:
        self.table.settled(finished.place, 0)
        self.settled.put(finished.settlement)

    def give(self, job: int, task: str, timeout: float | None = 60.0) -> Delivery:
        item = delivery(job=job, deadline=1e9, message=message(task, job, args=(job,), timeout=timeout))
        self.slots.deliver([item])
        return item

    def at(self, now: float) -> None:
        self.clock.now = now
        look(self.watcher)

    def close(self) -> None:
        for gate in _gates.values():
            gate.set()
        self.slots.stop()
        self.watcher.stop()
        if self.loop is not None:
            self.loop.stop()


class Gate:
    """A system call that blocks until it is let go; it shows as code of this module, and no lock is in it."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()

    def wait(self) -> None:
        os.read(self._out, 1)

    def set(self) -> None:
        os.write(self._in, b".")

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


_gates: dict[int, Gate] = {}
_begun: SimpleQueue[int] = SimpleQueue()


@app.task(name="stuck", backoff=Backoff(base=2.0))
def stuck(job: int) -> str:
    """Wait in a system call, which no exception reaches."""
    _begun.put(job)
    _gates[job].wait()
    return "finished"


@app.task(name="stuck_loop")
async def stuck_loop(job: int) -> str:
    _begun.put(job)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.to_thread(_gates[job].wait)
    return "finished"


@pytest.fixture
def gates() -> Iterator[None]:
    _gates.update((job, Gate()) for job in range(60))
    yield
    for gate in _gates.values():
        gate.close()
    _gates.clear()


@pytest.fixture
def rig(gates: None) -> Iterator[Rig]:
    rig = Rig(2)
    yield rig
    rig.close()


def begun(count: int) -> set[int]:
    return {_begun.get(timeout=10) for _ in range(count)}


def test_before_a_function_starts_word_is_left_of_what_its_end_would_be(rig: Rig) -> None:
    item = rig.give(0, "stuck")
    begun(1)
    (entry,) = rig.table.entries()
    assert (entry.stage, entry.limit) == (HELD, 1060.0)
    will = rig.table.wills.read(entry.place, item.receipt)
    assert (will.receipt, will.kind, will.delay, will.reason) == (item.receipt, "retry", 2.0, LIMIT)
    assert unpack_failure(will.error).kind == KIND
    with pytest.raises(LookupError):
        rig.table.wills.read(entry.place, receipt(7))


def test_an_overrun_has_no_slot_and_its_result_is_dropped(rig: Rig) -> None:
    rig.give(0, "stuck")
    rig.give(1, "stuck", None)
    begun(2)
    assert rig.table.held(0) == 2
    rig.at(1060.0)
    rig.at(1060.0 + OVERRUN_AFTER)
    assert [entry.kind for entry in rig.table.entries()] == [OVERRUN, 0]
    assert rig.table.held(0) == 1
    assert rig.slots.free().limit == 1
    rig.give(2, "stuck", None)
    assert begun(1) == {2}
    for job in range(3):
        _gates[job].set()
    kinds = sorted((one.receipt, one.kind) for one in (rig.settled.get(timeout=10) for _ in range(3)))
    assert [kind for _, kind in kinds] == ["retry", "done", "done"]


def test_fifty_overruns_leave_all_slots_free(rig: Rig) -> None:
    for job in range(50):
        rig.give(job, "stuck")
        assert begun(1) == {job}
        rig.at(rig.clock.now + 60.0)
        rig.at(rig.clock.now + OVERRUN_AFTER)
        assert rig.slots.free().limit == 2
    for job in (50, 51):
        rig.give(job, "stuck", None)
    assert begun(2) == {50, 51}
    for gate in _gates.values():
        gate.set()
    kinds = [rig.settled.get(timeout=10).kind for _ in range(52)]
    assert (kinds.count("retry"), kinds.count("done")) == (50, 2)


def test_a_coroutine_that_goes_on_leaves_its_place(gates: None) -> None:
    rig = Rig(1, coroutines=1)
    try:
        rig.give(0, "stuck_loop")
        begun(1)
        rig.at(1060.0)
        rig.at(1060.0 + OVERRUN_AFTER)
        assert [entry.kind for entry in rig.table.entries()] == [OVERRUN]
        rig.slots.free()
        rig.give(1, "stuck_loop", None)
        assert begun(1) == {1}
        _gates[0].set()
        assert rig.settled.get(timeout=10).kind == "retry"
        assert rig.table.held(1) == 1
    finally:
        rig.slots.interrupt()
        rig.close()


def test_a_job_without_a_limit_leaves_no_will(rig: Rig) -> None:
    rig.give(0, "stuck", None)
    begun(1)
    assert [entry.limit for entry in rig.table.entries()] == [float("inf")]
