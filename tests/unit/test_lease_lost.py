"""A task whose lease is lost: how its function ends, and what is said of its hand-out."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from tenure import App, Discard, JobContext, LeaseLost, Retry, TaskDefinitionError
from tenure.outcome import Discarded, Failed, Interrupted, Outcome, Retried, Returned
from tenure.settle import Policy, decide, outcome_of
from tests.unit.worker_fakes import WatchedHold, delivery, execute, look

app = App("shop")
ASKED = {"Retry": Retry(7, "in the same moment"), "Discard": Discard("not wanted"), "OSError": OSError("closed")}


class Losing(WatchedHold):
    """A hold whose lease is lost when the function says so; its watcher looks until it has seen that."""

    def lose(self) -> None:
        """Return once the watcher has looked and found no more to do."""
        self.lease_lost = True
        look(self.watcher)


def lose(context: JobContext) -> None:
    hold = context.hold
    assert isinstance(hold, Losing)
    hold.lose()


def work(ctx: JobContext, after: str = "") -> str:
    try:
        lose(ctx)
    finally:
        if after:
            raise ASKED[after]
    return "finished"


app.task(name="raises")(work)
app.task(name="finishes", on_lease_lost="finish")(work)
app.task(name="gives_up", retry_on=(), max_attempts=1)(work)


@app.task(name="pretends")
def pretends() -> None:
    """Raise what it has no cause for."""
    raise LeaseLost


@app.task(name="awaits_and_pretends")
async def awaits_and_pretends() -> None:
    """The same in a group of one."""
    raise BaseExceptionGroup("one", [LeaseLost()])


@app.task(name="loops")
def loops(ctx: JobContext) -> str:
    """Run an event loop of its own, with the step that loses the lease in a task of a group."""

    async def step() -> None:
        await asyncio.sleep(0)
        lose(ctx)

    async def steps() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step())
            group.create_task(asyncio.sleep(60))

    asyncio.run(steps())
    return "finished"


@app.task(name="awaits")
async def awaits(ctx: JobContext, after: str = "") -> str:
    lose(ctx)
    try:
        await asyncio.sleep(60)
    finally:
        if after:
            raise ASKED[after]
    return "finished"


@app.task(name="awaits_to_the_end", on_lease_lost="finish")
async def awaits_to_the_end(ctx: JobContext) -> str:
    lose(ctx)
    await asyncio.sleep(0)
    return "finished"


def run(task: str, *args: Any) -> tuple[Outcome, Policy]:
    return execute(app, delivery(task=task, args=args), Losing())


@pytest.mark.parametrize("task", ["raises", "loops", "gives_up"])
def test_a_function_is_ended(task: str) -> None:
    outcome, _ = run(task)
    assert isinstance(outcome, Interrupted)
    assert "LeaseLost" in outcome.failure.traceback


def test_a_coroutine_is_cancelled() -> None:
    outcome, _ = run("awaits")
    assert isinstance(outcome, Interrupted)
    assert outcome.failure.kind == "asyncio.exceptions.CancelledError"
    assert outcome.failure.text == "LeaseLost: another worker may hold this job by now"


@pytest.mark.parametrize("task", ["finishes", "awaits_to_the_end"])
def test_one_that_wants_to_finish_does(task: str) -> None:
    assert isinstance(run(task)[0], Returned)


@pytest.mark.parametrize("task", ["raises", "awaits"])
def test_an_error_of_its_clean_up_comes_of_the_interrupt(task: str) -> None:
    outcome, _ = run(task, "OSError")
    assert isinstance(outcome, Interrupted)
    assert outcome.failure.text == "closed"


@pytest.mark.parametrize(("after", "kind"), [("Retry", Retried), ("Discard", Discarded)])
@pytest.mark.parametrize("task", ["raises", "awaits"])
def test_what_the_task_asks_for_is_heard_all_the_same(task: str, after: str, kind: type[Outcome]) -> None:
    assert isinstance(run(task, after)[0], kind)


def test_it_is_told_as_a_retry_by_the_backoff_whatever_the_task_says_of_exceptions() -> None:
    item = delivery()
    outcome = outcome_of(LeaseLost(), Policy(max_attempts=3, retry_on=(), give_up_on=(BaseException,)))
    settlement = decide(outcome, item, Policy(max_attempts=3), 0.0, 1.0)
    assert (settlement.kind, settlement.delay) == ("retry", 1.0)
    assert settlement.reason == "tenure.errors.LeaseLost: another worker may hold this job by now"


def test_a_job_does_not_die_of_it() -> None:
    item = delivery()._replace(attempt=3)
    settlement = decide(outcome_of(LeaseLost(), Policy(3)), item, Policy(3), 0.0, 1.0)
    assert (settlement.kind, settlement.delay) == ("release", 4.0)


@pytest.mark.parametrize("task", ["pretends", "awaits_and_pretends"])
def test_one_that_raises_it_although_it_holds_the_job_has_failed(task: str) -> None:
    outcome, policy = run(task)
    assert isinstance(outcome, Failed)
    last = delivery()._replace(attempt=policy.max_attempts)
    assert decide(outcome, last, policy, 0.0, 1.0).kind == "dead"


def test_only_the_two_words_are_options() -> None:
    def nothing() -> None: ...

    words: tuple[Literal["raise", "finish"], ...] = ("raise", "finish")
    for word in words:
        assert app.task(name=word, on_lease_lost=word)(nothing).defaults.on_lease_lost == word
    with pytest.raises(TaskDefinitionError, match='on_lease_lost=None has to be "raise"'):
        app.task(name="neither", on_lease_lost=None)(nothing)  # type: ignore[call-overload]
