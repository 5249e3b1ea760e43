"""Code around the execution of jobs: its order, its two kinds around both kinds of tasks, and what goes wrong."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure import App, ConfigError, Discard, JobContext, JobFailed, current_job
from tenure.middleware import CallNext, Layer, around_coroutine, around_function
from tenure.testing import inline_worker

seen: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    seen.clear()


def plain_layer(name: str) -> Callable[[JobContext, CallNext], Any]:
    def layer(context: JobContext, call_next: CallNext) -> Any:
        seen.append(f"{name}>")
        try:
            return call_next()
        finally:
            seen.append(f"<{name}")

    return layer


def async_layer(name: str) -> Callable[[JobContext, CallNext], Any]:
    async def layer(context: JobContext, call_next: CallNext) -> Any:
        seen.append(f"{name}>")
        try:
            return await call_next()
        finally:
            seen.append(f"<{name}")

    return layer


def make_app(*layers: Any) -> App:
    app = App("shop", middleware=layers)

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        seen.append("add")
        return a + b

    @app.task(name="aadd")
    async def aadd(a: int, b: int) -> int:
        await asyncio.sleep(0)
        seen.append("aadd")
        return a + b

    return app


def result_of(app: App, task: str, *args: Any) -> Any:
    with inline_worker(app) as worker:
        job = app.tasks[task].delay(*args)
        worker.run_all(raise_errors=False)
        return job.result(timeout=5)


def context() -> JobContext:
    return JobContext.for_test(task="add")


@pytest.mark.parametrize("make", [plain_layer, async_layer])
def test_the_first_one_registered_is_the_outermost_around_a_plain_function(make: Callable[[str], Any]) -> None:
    app = make_app(make("a"))
    app.middleware(make("b"))
    assert result_of(app, "add", 2, 3) == 5
    assert seen == ["a>", "b>", "add", "<b", "<a"]


def test_both_kinds_mix_around_a_plain_function() -> None:
    app = make_app(plain_layer("a"), async_layer("b"), plain_layer("c"), async_layer("d"))
    assert result_of(app, "add", 2, 3) == 5
    assert seen == ["a>", "b>", "c>", "d>", "add", "<d", "<c", "<b", "<a"]


def test_a_plain_one_around_a_coroutine_begins_before_it_and_passes_its_awaitable_on() -> None:
    def watched(context: JobContext, call_next: CallNext) -> Any:
        seen.append("outer")
        return call_next()

    assert result_of(make_app(watched, async_layer("b"), async_layer("c")), "aadd", 2, 3) == 5
    assert seen == ["outer", "b>", "c>", "aadd", "<c", "<b"]


def test_a_plain_one_may_wrap_the_awaitable() -> None:
    async def doubled(made: Awaitable[int]) -> int:
        return 2 * await made

    assert result_of(make_app(lambda context, call_next: doubled(call_next())), "aadd", 2, 3) == 10


def test_it_may_change_the_result_or_answer_in_place_of_the_function() -> None:
    assert result_of(make_app(lambda context, call_next: call_next() + 1), "add", 2, 3) == 6
    seen.clear()
    assert result_of(make_app(lambda context, call_next: -1), "add", 2, 3) == -1
    assert seen == []


def test_an_async_one_around_a_coroutine_may_await_what_it_likes() -> None:
    async def patient(context: JobContext, call_next: CallNext) -> Any:
        await asyncio.sleep(0)
        return await asyncio.wait_for(call_next(), 5)

    assert result_of(make_app(patient), "aadd", 2, 3) == 5


def test_it_is_given_the_jobs_own_context() -> None:
    def looks(context: JobContext, call_next: CallNext) -> Any:
        assert current_job.id == context.id
        seen.append(f"{context.task} {context.attempt}")
        return call_next()

    assert result_of(make_app(looks), "add", 2, 3) == 5
    assert seen == ["add 1", "add"]


def test_what_the_function_raises_comes_through_the_layers() -> None:
    app = App("shop")

    @app.middleware
    def catches(context: JobContext, call_next: CallNext) -> Any:
        try:
            return call_next()
        except ZeroDivisionError:
            return "caught"

    @app.task(name="divide")
    def divide(a: int) -> float:
        return a / 0

    assert result_of(app, "divide", 1) == "caught"


@pytest.mark.parametrize("task", ["add", "aadd"])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_a_middleware_raises_is_the_jobs_own(task: str, kind: str) -> None:
    def refuses(context: JobContext, call_next: CallNext) -> Any:
        raise LookupError("no tenant")

    async def arefuses(context: JobContext, call_next: CallNext) -> Any:
        raise LookupError("no tenant")

    app = make_app(refuses if kind == "plain" else arefuses)
    with inline_worker(app) as worker:
        job = app.tasks[task].options(max_attempts=2).delay(1, 2)
        with pytest.raises(LookupError, match="no tenant"):
            worker.run_all()
        assert worker.state(job) == "dead"
        with pytest.raises(JobFailed, match="LookupError: no tenant"):
            job.result(timeout=5)
    assert seen == []


def test_a_middleware_may_say_what_becomes_of_the_job() -> None:
    def discards(context: JobContext, call_next: CallNext) -> Any:
        raise Discard("not wanted")

    app = make_app(discards)
    with inline_worker(app) as worker:
        job = app.tasks["add"].delay(1, 2)
        worker.run_all()
        assert worker.state(job) == "cancelled"


def awaits_something(context: JobContext, call_next: CallNext) -> Any:
    return _awaits_something(call_next)


class Stuck:
    def __await__(self) -> Any:
        yield


async def _awaits_something(call_next: CallNext) -> Any:
    try:
        await Stuck()
    finally:
        seen.append("cleaned up")
    return await call_next()


def test_an_async_one_around_a_plain_function_can_await_nothing_else() -> None:
    with pytest.raises(TypeError, match=r"test_middleware\.awaits_something awaited something else than call_next\(\)"):
        around_function([Layer(awaits_something, is_async=True)], context(), lambda: 5)
    assert seen == ["cleaned up"]


def test_neither_can_one_that_swallows_that() -> None:
    async def stubborn(context: JobContext, call_next: CallNext) -> Any:
        try:
            await Stuck()
        except TypeError:
            return 5

    with pytest.raises(TypeError, match="awaited something else"):
        around_function([Layer(stubborn, is_async=True)], context(), lambda: 5)


def test_one_that_needs_the_loop_is_told_that_there_is_none() -> None:
    async def sleeps(context: JobContext, call_next: CallNext) -> Any:
        await asyncio.sleep(0.01)

    with pytest.raises(RuntimeError, match="no running event loop") as caught:
        around_function([Layer(sleeps, is_async=True)], context(), lambda: 5)
    assert "can await nothing but call_next()" in caught.value.__notes__[0]


def test_a_plain_one_that_keeps_the_coroutine_to_itself_is_told_so() -> None:
    def forgets(context: JobContext, call_next: CallNext) -> Any:
        call_next()

    async def body() -> int:
        raise AssertionError("it must not run")

    with pytest.raises(TypeError, match=r"forgets returned NoneType around the coroutine of add.*call_next"):
        asyncio.run(around_coroutine([Layer(forgets, is_async=False)], context(), body))


@pytest.mark.parametrize("wrong", [5, lambda: None, lambda context: None])
def test_what_cannot_be_one_is_refused_where_it_is_registered(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.middleware goes on a function of the job's context and call_next"):
        App("shop").middleware(wrong)
    with pytest.raises(ConfigError, match=r"@app\.middleware goes on"):
        App("shop", middleware=[wrong])


def test_a_job_that_runs_twice_runs_inside_of_it_twice() -> None:
    app = make_app(plain_layer("a"))
    with inline_worker(app) as worker:
        job = app.tasks["add"].delay(1, 2)
        worker.run_twice(job)
    assert seen == ["a>", "add", "<a"] * 2


def test_a_test_sees_the_frames_of_its_own_code_alone() -> None:
    app = App("shop")

    @app.task(name="broken", max_attempts=1)
    def broken() -> None:
        raise ValueError("no")

    with inline_worker(app) as worker:
        broken.delay()
        with pytest.raises(ValueError, match="no") as caught:
            worker.run_all()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "broken"
    assert not {"function_of", "__call__", "around_function"} & set(names)
