"""Coroutines in the slots: as many at once as there are places, each settled once, and given back at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from tenure import App, JobContext, current_job
from tenure.codec import unpack_value
from tenure.context import would_deadlock
from tenure.message import Delivery
from tenure.worker.executor import Executor
from tenure.worker.loop import Loop
from tenure.worker.room import Room, kinds_of_queues
from tenure.worker.settler import Finished
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, delivery, message, settle_at_every_wait

app = App("shop")
seen: dict[str, Any] = {}
left_over: ContextVar[int] = ContextVar("left_over")


@app.task(name="sync")
def sync(name: str = "", queue: str = "") -> bool:
    return would_deadlock(name or None, queue or None)


@app.task(name="quick", queue="web")
async def quick() -> int:
    before = left_over.get(0)
    left_over.set(1)
    await asyncio.sleep(0)
    return before


@app.task(name="waits", queue="web")
async def waits(ctx: JobContext) -> str:
    seen["running"] = seen.get("running", 0) + 1
    seen["came"].release()
    try:
        await seen["gate"].wait()
    finally:
        seen["stopping"] = ctx.stopping
    return current_job.id


@app.task(name="ends", queue="web")
async def ends(kind: str) -> None:
    raise {"SystemExit": SystemExit, "CancelledError": asyncio.CancelledError}[kind]


@app.task(name="cancels_all", queue="web")
async def cancels_all() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@app.task(name="once", queue="web", give_up_on=asyncio.CancelledError)
async def once() -> None: ...


class Rig:
    def __init__(self, threads: int = 1, coroutines: int = 3) -> None:
        self.clock = HandClock()
        self.table = Table.create(threads + coroutines, shared=False)
        self.out: list[Finished] = []
        self.came = threading.Semaphore(0)
        self.loop = Loop()
        self.loop.start()
        seen.clear()
        seen.update(came=threading.Semaphore(0), gate=asyncio.Event())
        self.slots = Slots(
            threads, self.table, Executor(app.tasks, self.clock.boot, 1000), self._settle, self.clock, lambda: 1.0,
            loop=self.loop, coroutines=coroutines, queues=kinds_of_queues(("default", "web"), app.tasks),
        )  # fmt: skip
        self.slots.start()

    def _settle(self, finished: Finished) -> None:
        self.out.append(finished)
        self.came.release()

    def deliver(self, *items: Delivery) -> None:
        self.slots.deliver(items)

    def settled(self, count: int = 1) -> list[Finished]:
        for _ in range(count):
            assert self.came.acquire(timeout=10)
        return self.out[-count:]

    def open(self) -> None:
        async def open_() -> None:
            seen["gate"].set()

        self.loop.call(open_())

    def begun(self, count: int) -> None:
        for _ in range(count):
            assert seen["came"].acquire(timeout=10)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.open()
    rig.slots.stop()
    rig.loop.stop()


def web(task: str, job: int, **fields: Any) -> Delivery:
    return delivery(message=message(task, job, queue="web", **fields), job=job)


def test_as_many_run_at_once_as_there_are_places(rig: Rig) -> None:
    assert rig.slots.free() == Room(1)
    rig.deliver(*(web("waits", job) for job in range(3)))
    rig.begun(3)
    assert seen["running"] == 3
    assert rig.slots.free() == Room(1, ("default",))
    rig.open()
    assert {finished.settlement.kind for finished in rig.settled(3)} == {"done"}
    assert rig.table.counts().started == 3


def test_nothing_leaks_from_one_to_the_next(rig: Rig) -> None:
    for job in range(5):
        rig.deliver(web("quick", job))
        (finished,) = rig.settled()
        assert unpack_value(finished.settlement.result or b"") == 0


@pytest.mark.parametrize("kind", ["SystemExit", "CancelledError"])
def test_what_a_coroutine_raises_fails_its_job_and_the_next_one_runs(rig: Rig, kind: str) -> None:
    rig.deliver(web("ends", 1, args=(kind,)))
    (finished,) = rig.settled()
    assert finished.settlement.kind == "retry"
    assert kind in finished.settlement.reason
    rig.deliver(web("quick", 2))
    assert rig.settled()[0].settlement.kind == "done"


def test_a_job_of_another_kind_than_its_queue_has_is_given_back_if_no_slot_is_free(rig: Rig) -> None:
    rig.deliver(*(web("waits", job) for job in range(3)))
    rig.begun(3)
    stray = delivery(message=message("quick", 7, queue="default"), job=7)
    rig.deliver(stray)
    (finished,) = rig.settled()
    assert (finished.settlement.kind, finished.settlement.receipt) == ("release", stray.receipt)
    assert "no slot of its kind" in finished.settlement.reason
    rig.open()
    rig.settled(3)


def test_coroutines_that_still_run_at_the_end_are_cancelled_and_their_jobs_given_back(rig: Rig) -> None:
    rig.deliver(web("waits", 1), web("waits", 2))
    rig.begun(2)
    rig.slots.drain()
    rig.slots.interrupt()
    finished = rig.settled(2)
    assert {(one.settlement.kind, one.settlement.reason) for one in finished} == {("release", "the worker is leaving")}
    assert seen["stopping"] is True


def test_a_free_wakes_up_for_the_drain(rig: Rig) -> None:
    rig.deliver(*(web("waits", job) for job in range(3)))
    rig.slots._admission.slots.took(0)
    woken: list[Room] = []
    thread = threading.Thread(target=lambda: woken.append(rig.slots.free()))
    thread.start()
    rig.slots.drain()
    thread.join(10)
    assert woken == [Room(0)]
    assert rig.slots.free() == Room(0)


def test_an_error_around_a_coroutine_is_a_failed_attempt(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    executor = rig.slots._executor
    broken = Executor(app.tasks, rig.clock.boot, 1000)
    broken.execute_async = None  # type: ignore[method-assign, assignment]
    rig.slots._executor = broken
    rig.deliver(web("quick", 1))
    assert rig.settled()[0].settlement.kind == "retry"
    assert "unexpected error around a job" in caplog.text
    rig.slots._executor = executor


def test_lost_coroutines_run_apart_too(rig: Rig) -> None:
    settle_at_every_wait(rig.clock, rig.table, rig.out)
    rig.deliver(*(web("quick", job)._replace(losses=4) for job in range(2)))
    assert [one.settlement.kind for one in rig.settled(2)] == ["release", "done"]


@pytest.mark.parametrize(
    ("waits_for", "elsewhere", "hopeless"),
    [
        (("sync",), (0, 0, 0), True),
        (("quick",), (0, 0, 0), False),
        ((), (0, 0, 0), False),
        (("shop.other",), (0, 0, 0), False),
        (("sync",), (1, 0, 0), False),
        (("quick", "default"), (0, 0, 0), True),  # a queue is taken from while all kinds that it needs are free
        (("quick", "default"), (1, 1, 0), True),  # of two processes, neither has both
        (("quick", "default"), (1, 1, 1), False),
        (("sync", "web"), (0, 0, 0), True),  # it would be given back
        (("sync", "others"), (0, 0, 0), False),  # other workers serve it
        (("", "default"), (0, 0, 0), True),
        (("", "web"), (0, 0, 0), False),
    ],
)
def test_whether_another_job_can_be_taken(
    rig: Rig, waits_for: tuple[str, ...], elsewhere: tuple[int, int, int], hopeless: bool
) -> None:
    rig.table.tell_free_elsewhere(*elsewhere)
    rig.deliver(delivery(1, task="sync", args=waits_for))
    (finished,) = rig.settled()
    assert unpack_value(finished.settlement.result or b"") is hopeless


def test_with_all_places_taken_no_coroutine_can_be_waited_for(rig: Rig) -> None:
    rig.deliver(*(web("waits", job) for job in range(3)))
    rig.begun(3)
    rig.deliver(delivery(9, task="sync", args=("quick",)))
    (finished,) = rig.settled()
    assert unpack_value(finished.settlement.result or b"") is True


def test_a_coroutine_that_is_cancelled_before_its_first_step_fails_and_frees_its_slot(rig: Rig) -> None:
    rig.deliver(web("cancels_all", 1), web("quick", 2), web("once", 3))
    finished = {one.task: one.settlement for one in rig.settled(3)}
    assert {task: settlement.kind for task, settlement in finished.items()} == {
        "cancels_all": "done", "quick": "retry", "once": "dead",
    }  # fmt: skip
    assert "CancelledError: cancelled before its first step" in finished["quick"].reason
    assert rig.table.counts().started == 3
    rig.loop.finish()
    rig.slots._admission._collect()
    assert rig.slots._admission.slots.room() == Room(1)
    assert rig.slots._admission.slots._free == [1, 3]


def test_one_that_the_leaving_worker_cancels_before_its_first_step_is_given_back(rig: Rig) -> None:
    rig.slots._interrupted = True
    rig.deliver(web("cancels_all", 1), web("quick", 2))
    settlements = {one.task: one.settlement for one in rig.settled(2)}
    assert (settlements["quick"].kind, settlements["quick"].reason) == ("release", "the worker is leaving")


def test_one_that_was_cancelled_before_its_first_step_and_too_late_is_only_dropped(rig: Rig) -> None:
    late = web("quick", 2)._replace(deadline=rig.clock.now)
    rig.deliver(web("cancels_all", 1), late)
    rig.settled()
    rig.loop.finish()
    assert not rig.table.holds(late.receipt)
    assert len(rig.out) == 1


def test_jobs_of_another_kind_in_the_own_queue_cannot_be_waited_for_while_all_threads_do() -> None:
    mixed = App("mixed")
    mixed.task(name="parent")(would_deadlock)

    @mixed.task(name="child")
    async def child() -> None: ...

    table = Table.create(104, shared=False)
    executor = Executor(mixed.tasks, lambda: 1000.0, 1000)
    queues = kinds_of_queues(("default",), mixed.tasks)
    loop = Loop()
    loop.start()
    slots = Slots(4, table, executor, lambda _: None, HandClock(), loop=loop, coroutines=100, queues=queues)
    for number in range(4):
        assert table.surroundings.idle("child", None)
        slots.deliver([delivery(number, task="parent", args=("child",))])
    assert slots._admission.slots.room() == Room(0)
    assert not table.surroundings.idle("child", "default")
    loop.stop()
