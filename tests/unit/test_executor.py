"""One execution: what the function is given, and what is kept of what it returns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from tenure import App, JobContext, Retry, clock, current_job
from tenure.codec import NotStored, Stored, unpack_result
from tenure.context import Progress, TestHold
from tenure.errors import DecodeError
from tenure.outcome import Died, Failed, Interrupted, Outcome, Retried, Returned, failure_from
from tenure.worker.executor import Executor
from tenure.worker.room import ASYNC, SYNC
from tests.unit.worker_fakes import delivery

T = TypeVar("T")

WITHOUT_COROUTINES = """
import sys
from tenure import App
from tenure.clock import SystemClock
from tenure.worker.services import Services
from tenure.worker.table import Table

app = App("shop", broker="tenure://127.0.0.1:1")
app.task(name="plain")(print)
Services(
    app, app.broker, Table.create(2, shared=False), SystemClock(), queues=("default",), session="0" * 32, name="n",
    threads=1, async_slots=1, grace=1.0, visibility_timeout=30.0,
).prepare()
print([name for name in ("asyncio", "concurrent.futures") if name in sys.modules])
"""

app = App("shop")


@app.task(name="given")
def given(ctx: JobContext, order_id: int, *, note: str = "") -> list[Any]:
    ctx.progress(1, 2, note)
    return [ctx.id == current_job.id, ctx.attempt, order_id, note]


@app.task(name="agiven")
async def agiven(ctx: JobContext, order_id: int) -> list[Any]:
    await asyncio.sleep(0)
    ctx.progress(order_id)
    return [ctx.id == current_job.id, order_id]


@app.task(name="plain")
async def plain(order_id: int) -> int:
    return order_id


@app.task(name="silent", results=False)
def silent(value: Any = None) -> Any:
    return value


@app.task(name="forgot")
def forgot() -> object:
    return plain(1)


class Later:
    def __await__(self) -> Iterator[None]:
        yield None


@app.task(name="silent_awaitable", results=False)
def silent_awaitable() -> object:
    return Later()


@app.task(name="forgot_await")
async def forgot_await() -> object:
    return plain(1)


@app.task(name="raises")
async def raises(kind: str) -> None:
    kinds: dict[str, BaseException] = {
        "CancelledError": asyncio.CancelledError("its own"), "KeyboardInterrupt": KeyboardInterrupt(),
        "SystemExit": SystemExit(2), "ValueError": ValueError("no"), "GeneratorExit": GeneratorExit(),
    }  # fmt: skip
    await asyncio.sleep(0)
    raise kinds[kind]


@app.task(name="breaks")
def breaks() -> None:
    raise ValueError("no")


@app.task(name="asks")
async def asks() -> None:
    raise Retry(delay=3)


@pytest.fixture
def executor() -> Executor:
    return Executor(app.tasks, lambda: 1000.0, 1000)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


def kept(outcome: Outcome) -> Stored | NotStored:
    assert isinstance(outcome, Returned)
    assert outcome.result is not None
    return unpack_result(outcome.result)


def test_a_context_comes_first_and_is_the_current_job(executor: Executor) -> None:
    hold = TestHold()
    outcome, _ = executor.execute(delivery(task="given", args=(7,), attempt=3), hold)
    assert kept(outcome) == Stored([True, 3, 7, ""])
    assert hold.said == [Progress(1, 2, "")]


def test_a_coroutine_is_awaited_and_may_have_a_context_too(executor: Executor) -> None:
    hold = TestHold()
    outcome, _ = run(executor.execute_async(delivery(task="agiven", args=(7,)), hold))
    assert kept(outcome) == Stored([True, 7])
    assert hold.said == [Progress(7)]
    outcome, _ = run(executor.execute_async(delivery(task="plain", args=(8,)), hold))
    assert kept(outcome) == Stored(8)


@pytest.mark.parametrize("kind", ["CancelledError", "KeyboardInterrupt", "SystemExit", "ValueError", "GeneratorExit"])
def test_whatever_a_coroutine_raises_is_an_outcome(executor: Executor, kind: str) -> None:
    outcome, _ = run(executor.execute_async(delivery(task="raises", args=(kind,)), TestHold()))
    assert isinstance(outcome, Failed)
    assert kind in outcome.failure.kind


def test_what_a_coroutine_asks_for_is_heard(executor: Executor) -> None:
    outcome, _ = run(executor.execute_async(delivery(task="asks"), TestHold()))
    assert isinstance(outcome, Retried)
    assert outcome.delay == 3


@pytest.mark.parametrize("value", [(), (5,)])
def test_a_task_without_results_says_so_in_their_place(executor: Executor, value: tuple[int, ...]) -> None:
    result = kept(executor.execute(delivery(task="silent", args=value), TestHold())[0])
    assert isinstance(result, NotStored)
    assert result.kind == "disabled"


def test_a_coroutine_that_a_plain_function_returns_has_never_run_and_no_attempt_changes_that(
    executor: Executor,
) -> None:
    outcome, _ = executor.execute(delivery(task="forgot"), TestHold())
    assert isinstance(outcome, Died)
    assert outcome.reason == (
        "forgot returned a coroutine, which never ran: write the function as async def, and await it there"
    )
    assert outcome.failure.kind.endswith("TypeError")


def test_what_else_has_to_be_awaited_is_no_result_either(executor: Executor) -> None:
    outcome, _ = executor.execute(delivery(task="silent_awaitable"), TestHold())
    assert isinstance(outcome, Died)
    assert "returned Later, which has to be awaited" in outcome.reason
    outcome, _ = run(executor.execute_async(delivery(task="forgot_await"), TestHold()))
    assert isinstance(outcome, Died)
    assert outcome.reason.endswith("which never ran: await it in the function")


def test_kinds_of_slots(executor: Executor) -> None:
    assert executor.home("given") == (SYNC, "default")
    assert executor.home("plain") == (ASYNC, "default")
    assert executor.home("shop.other") is None
    assert executor.is_async(delivery(task="plain"))
    assert not executor.is_async(delivery(task="shop.other"))


def test_a_process_without_coroutines_never_loads_asyncio() -> None:
    code = [sys.executable, "-c", WITHOUT_COROUTINES]
    assert subprocess.run(code, capture_output=True, text=True, timeout=30, check=True).stdout == "[]\n"


def test_a_job_whose_lease_is_lost_while_its_arguments_are_read_does_not_begin() -> None:
    executor = Executor(app.tasks, clock.boot, 1000)
    hold = TestHold(lease_lost=True)
    late = delivery(task="given", args=(7,), deadline=clock.boot())
    outcome, _ = executor.execute(late, hold)
    assert isinstance(outcome, Interrupted)
    assert hold.said == []
    hold.lease_lost = False  # it was extended meanwhile
    outcome, _ = executor.execute(late, hold)
    assert isinstance(outcome, Returned)


def test_a_traceback_begins_with_the_task_itself(executor: Executor) -> None:
    outcomes = [executor.execute(delivery(task="breaks"), TestHold())[0]]
    outcomes += [run(executor.execute_async(delivery(task="raises", args=("ValueError",)), TestHold()))[0]]
    for outcome, line in zip(outcomes, ('raise ValueError("no")', "raise kinds[kind]"), strict=True):
        assert isinstance(outcome, Failed)
        first, place, source = outcome.failure.traceback.splitlines()[:3]
        assert first == "Traceback (most recent call last):"
        assert __file__ in place
        assert line in source
    with pytest.raises(DecodeError) as own:
        unpack_result(b"junk")
    frames = own.value.__traceback__
    assert "codec.py" in failure_from(own.value.with_traceback(frames and frames.tb_next)).traceback, (
        "all of them Tenure's"
    )
