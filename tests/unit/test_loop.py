"""The event loop of a worker process: nothing that a coroutine does ends it, and nothing leaks between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import ContextVar

import pytest

from tenure.worker.loop import Loop, Start

left_over: ContextVar[str] = ContextVar("left_over", default="nothing")


def spawn(loop: Loop, *coroutines: Coroutine[None, None, None]) -> list[str]:
    """Start them; the list tells the ends as they come."""
    ends: list[str] = []
    loop.spawn([Start(coroutine, lambda: ends.append("ended")) for coroutine in coroutines])
    return ends


async def ident() -> tuple[int, asyncio.AbstractEventLoop]:
    return threading.get_ident(), asyncio.get_running_loop()


def test_all_run_in_one_loop_and_one_thread(loop: Loop) -> None:
    seen = {loop.call(ident()) for _ in range(10)}
    assert len(seen) == 1
    assert next(iter(seen))[0] != threading.get_ident()


def test_contexts_do_not_mix(loop: Loop) -> None:
    seen: list[str] = []

    async def job(name: str) -> None:
        seen.append(left_over.get())
        left_over.set(name)
        await asyncio.sleep(0)
        seen.append(left_over.get())

    left_over.set("the caller's")
    spawn(loop, job("a"), job("b"))
    loop.finish()
    spawn(loop, job("c"))
    loop.finish()
    left_over.set("nothing")
    assert seen == ["nothing", "nothing", "a", "b", "nothing", "c"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_a_task_within_a_job_raises_does_not_end_the_loop(
    loop: Loop, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def child() -> None:
        raise error

    async def job() -> None:
        task = asyncio.ensure_future(child())
        await asyncio.wait([task])
        task.cancelled() or task.exception()

    before = loop.call(ident())
    spawn(loop, job())
    loop.finish()
    assert loop.call(ident()) == before


def test_somebody_stops_the_loop_by_hand(loop: Loop) -> None:
    async def job() -> None:
        asyncio.get_running_loop().stop()

    spawn(loop, job())
    loop.finish()
    assert loop.call(ident())[0]


def test_the_error_of_a_call_comes_to_the_caller(loop: Loop) -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.call(fails())


def test_cancel_reaches_what_was_spawned(loop: Loop) -> None:
    ended: list[str] = []
    begun = threading.Event()

    async def job() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cleaned up")

    spawn(loop, job())
    assert begun.wait(10)
    loop.cancel()
    loop.finish()
    assert ended == ["cleaned up"]


def test_what_jobs_have_left_running_is_cancelled_at_the_end() -> None:
    loop = Loop()
    loop.start()
    ended: list[str] = []
    kept: list[asyncio.Task[None]] = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("left")

    async def job() -> None:
        kept.append(asyncio.create_task(left()))
        await asyncio.sleep(0)

    spawn(loop, job())
    loop.finish()
    loop.stop()
    assert ended == ["left"]


def test_what_is_cancelled_before_its_first_step_has_ended_too(loop: Loop) -> None:
    entered: list[str] = []

    async def job(name: str) -> None:
        entered.append(name)

    async def cancels_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    ends = spawn(loop, cancels_all(), job("a"), job("b"))
    loop.finish()
    assert (entered, ends) == ([], ["ended"] * 3)


def test_an_error_in_what_is_told_of_the_end_keeps_nothing_from_going_on(loop: Loop) -> None:
    async def job() -> None: ...

    def fails() -> None:
        raise ValueError("no")

    loop.spawn([Start(job(), fails)])
    loop.finish()
    assert loop.call(ident())[0]
