"""Which queues may be asked for how much: no job is taken that no slot is free for."""

from __future__ import annotations

from tenure import App
from tenure.worker.room import ASYNC, SYNC, FreeSlots, Room, kinds_of_queues, mixed_queues

S, A, BOTH = frozenset({SYNC}), frozenset({ASYNC}), frozenset({SYNC, ASYNC})


def busy(free: FreeSlots, kind: int, times: int) -> None:
    for _ in range(times):
        free.took(kind)


def test_one_kind_is_plain_counting() -> None:
    free = FreeSlots((2, 0), {"default": S, "mail": S})
    assert free.room() == Room(2)
    busy(free, SYNC, 2)
    assert free.room() == Room(0)
    free.gave_back(SYNC)
    assert free.room() == Room(1)


def test_while_all_kinds_are_free_the_scarcest_bounds_a_take_from_all_queues() -> None:
    free = FreeSlots((2, 100), {"default": S, "web": A, "mixed": BOTH})
    assert free.room() == Room(2)


def test_a_queue_is_left_out_while_a_kind_that_its_tasks_need_is_not_free() -> None:
    free = FreeSlots((2, 100), {"default": S, "web": A, "mixed": BOTH})
    busy(free, SYNC, 2)
    assert free.room() == Room(100, ("web",))
    busy(free, ASYNC, 100)
    assert free.room() == Room(0)
    free.gave_back(SYNC)
    assert free.room() == Room(1, ("default",))


def test_a_job_of_a_kind_that_its_queue_had_not_is_learnt_from() -> None:
    free = FreeSlots((1, 5), {"default": S, "web": A})
    busy(free, SYNC, 1)
    assert free.room() == Room(5, ("web",))
    assert not free.is_surprised_by("web", ASYNC)
    assert free.is_surprised_by("web", SYNC)  # and there is no slot for it
    assert free.room() == Room(0)
    free.gave_back(SYNC)
    assert free.room() == Room(1)
    assert not free.is_surprised_by("web", SYNC)


def test_kinds_come_from_the_tasks_own_queues() -> None:
    app = App("shop")
    app.task(name="a")(print)

    @app.task(name="b", queue="web")
    async def b() -> None: ...

    @app.task(name="c", queue="mixed")
    async def c() -> None: ...

    app.task(name="d", queue="mixed")(print)
    assert kinds_of_queues(("default", "web", "mixed", "unknown"), app.tasks) == {
        "default": S, "web": A, "mixed": BOTH, "unknown": BOTH,
    }  # fmt: skip


def test_queues_with_both_kinds_are_warned_of() -> None:
    app = App("shop")
    app.task(name="a")(print)
    app.task(name="b", queue="mixed")(print)

    @app.task(name="c", queue="web")
    async def c() -> None: ...

    assert mixed_queues(("default", "web", "mixed", "unknown"), app.tasks) == ""
    app.task(name="d", queue="mixed")(c.fn)
    line = mixed_queues(("default", "web", "mixed", "unknown"), app.tasks)
    assert line.startswith("queues with both plain functions and coroutines: mixed. They are taken from only while")
    assert mixed_queues(("default", "web"), app.tasks) == ""


def test_what_a_take_from_a_queue_needs() -> None:
    free = FreeSlots((2, 100), {"default": S, "mixed": BOTH})
    assert free.needs("mixed") == [BOTH]
    assert free.needs(None) == [S, BOTH]
    assert free.needs("others") == []
    assert not free.is_surprised_by("default", ASYNC)
    assert free.needs("default") == [BOTH]
