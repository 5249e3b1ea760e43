"""Each case twice, in the test's thread over memory:// and by a real worker on a real server: the same comes of it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tenure import App, Backoff, current_job
from tenure.codec import unpack_failure
from tenure.context import JobContext
from tenure.errors import Dead, Discard, Retry, Snooze
from tenure.job import Job
from tenure.testing import inline_worker
from tests.stage.harness import Stage

QUICK = Backoff(base=0.02, factor=1.0)


@dataclass
class Told:
    """What a case has seen: by its tasks, by its handlers, and at the calls."""

    seen: list[object] = field(default_factory=list)
    died: list[object] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    jobs: list[Job[Any]] = field(default_factory=list)

    def add(self, task: Any, *args: object, **kwargs: object) -> None:
        """Add a job, or note why that was refused."""
        try:
            self.jobs.append(task.delay(*args, **kwargs))
        except (TypeError, ValueError) as error:
            self.refused.append((type(error).__name__, str(error)))


Case = Callable[[App, Told], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def typed(value: object) -> object:
    """A value with its kinds, all the way down."""
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, dict):
        return "dict", [(typed(key), typed(item)) for key, item in value.items()]
    return type(value).__name__, repr(value)


@case
def kinds_of_values(app: App, told: Told) -> None:
    @app.task(name="echo")
    def echo(value: Any) -> Any:
        told.seen.append(typed(value))
        return value

    values = [
        ("a", ("b", ["c"])), {1: "a", (2, 3): "b", None: 0}, uuid.UUID(int=7), {1, 2}, frozenset([3]), 2**64, -(10**40),
        float("nan"), -0.0, b"bytes", bytearray(b"array"), None, True,
    ]  # fmt: skip
    for value in values:
        told.add(echo, value)


@case
def values_that_cannot_travel(app: App, told: Told) -> None:
    @app.task(name="take")
    def take(value: Any = None) -> None:
        told.seen.append(value)

    cycle: list[object] = []
    cycle.append(cycle)
    for value in (len, threading.Lock, {"when": object}, "\ud800", cycle, range(3)):
        told.add(take, value)
    told.add(take, 1, 2)


@case
def a_list_that_both_sides_change(app: App, told: Told) -> None:
    @app.task(name="change")
    def change(items: list[int]) -> list[int]:
        items.append(9)
        return items

    shared = [1]
    told.add(change, shared)
    shared.append(2)
    told.seen.append(shared)


@case
def fails_twice_then_works(app: App, told: Told) -> None:
    @app.task(name="flaky", backoff=QUICK, on_dead=lambda job, failure: told.died.append(job.id))
    def flaky() -> str:
        told.seen.append(current_job.attempt)
        if current_job.attempt < 3:
            raise ValueError("not yet")
        return "there"

    told.add(flaky)


@case
def fails_always(app: App, told: Told) -> None:
    def on_dead(job: Any, failure: Any) -> None:
        told.died.append((job.attempt, job.args, job.reason, failure.kind, failure.text))

    @app.task(name="broken", backoff=QUICK, max_attempts=3, on_dead=on_dead)
    def broken(order: int) -> None:
        told.seen.append(current_job.attempt)
        raise LookupError(f"order {order}")

    told.add(broken, 7)


@case
def what_a_task_asks_for(app: App, told: Told) -> None:
    @app.task(name="ask", backoff=QUICK, max_attempts=3)
    def ask(what: str) -> None:
        told.seen.append((what, current_job.attempt, current_job.fence))
        if current_job.fence == 1 and what in ("retry", "snooze"):
            raise Retry(delay=0.01, reason="soon") if what == "retry" else Snooze(0.01)
        if what == "dead":
            raise Dead("no use")
        if what == "discard":
            raise Discard("not wanted")

    for what in ("retry", "snooze", "dead", "discard"):
        told.add(ask, what)


@case
def exceptions_of_all_kinds(app: App, told: Told) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(threading.Lock)

        def __str__(self) -> str:
            raise RuntimeError("not even its text")

    def noted() -> Exception:
        error = ValueError("emoji \N{GRINNING FACE}, NUL \0 and \ud800")
        error.add_note("a note")
        return error

    made: dict[str, Callable[[], BaseException]] = {
        "odd": lambda: Odd(1, 2),
        "noted": noted,
        "group": lambda: ExceptionGroup("two", [ValueError(1), KeyError("k")]),
        "exit": lambda: SystemExit(3),
        "generator": GeneratorExit,
        "cancelled": asyncio.CancelledError,
    }

    @app.task(name="throw", max_attempts=1)
    def throw(name: str) -> None:
        error = made[name]()
        raise error

    for name in made:
        told.add(throw, name)


@case
def an_interrupt(app: App, told: Told) -> None:
    @app.task(name="interrupt", max_attempts=1)
    def interrupt() -> None:
        raise KeyboardInterrupt

    told.add(interrupt)


@case
def results_that_cannot_be_kept(app: App, told: Told) -> None:
    @app.task(name="give")
    def give(large: bool) -> object:
        told.seen.append(large)
        return bytes(2 * 1024 * 1024) if large else threading.Lock()

    @app.task(name="silent", results=False)
    def silent() -> int:
        return 1

    told.add(give, True)
    told.add(give, False)
    told.add(silent)


@case
def coroutines_and_contexts(app: App, told: Told) -> None:
    @app.task(name="co", backoff=QUICK, max_attempts=2)
    async def co(context: JobContext, number: int) -> int:
        await asyncio.sleep(0)
        told.seen.append((number, context.attempt, context.task, bool(current_job), context.lease_lost))
        if number < 0:
            raise ValueError(number)
        return number

    told.add(co, 1)
    told.add(co, -1)


@case
def jobs_that_add_jobs_and_duplicates(app: App, told: Told) -> None:
    @app.task(name="child", key=lambda number: f"child-{number % 2}")
    def child(number: int) -> None:
        told.seen.append(number)

    @app.task(name="parent")
    def parent() -> list[bool]:
        children = [child.delay(number) for number in (0, 1, 0)]
        told.jobs.extend(children)
        return [job.created for job in children]

    told.add(parent)


@case
def a_call_that_fits_no_more(app: App, told: Told) -> None:
    older = App("older", broker=app.broker)

    @older.task(name="changed")
    def changed(one: int) -> None:
        told.seen.append("older")

    @app.task(name="changed", on_dead=lambda job, failure: told.died.append(job.reason))
    def changed_since(one: int, two: int) -> None:
        told.seen.append("newer")

    message = changed.message((1,), {}, changed.s(1).call_options)
    app.broker.add([message])
    told.jobs.append(Job(message.id, message.id, message.queue, message.task, True, app))


def outcome(app: App, job: Job[Any]) -> dict[str, object]:
    """What the broker knows of a job that has ended, without what differs from run to run."""
    results = app.broker.results()
    assert results is not None
    (state,) = results.wait([job.id], 15.0)
    failure = unpack_failure(state.failure) if state.failure else None
    words = None if failure is None else (failure.kind, failure.text, failure.notes, failure.args, len(failure.chain))
    return {
        "state": state.state,
        "attempts": state.attempts,
        "losses": state.losses,
        "reason": state.reason,
        "result": state.result,
        "failure": words,
    }


def facts(app: App, told: Told) -> dict[str, object]:
    """All that can be compared."""
    return {
        "jobs": [outcome(app, job) for job in told.jobs],
        "seen": told.seen,
        "died": told.died,
        "refused": told.refused,
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    stage = Stage(Path(tmp_path_factory.mktemp("server")))
    try:
        stage.start_server()
        yield stage.url
    finally:
        stage.close()


def with_a_worker(name: str, url: str) -> dict[str, object]:
    app, told = App("shop", broker=url), Told()
    CASES[name](app, told)
    worker = app.worker(threads=1, async_slots=1)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        found = facts(app, told)
    finally:
        worker.stop()
        thread.join(20)
    app.close()
    return {**found, "seen": told.seen, "died": told.died}


def in_this_thread(name: str) -> dict[str, object]:
    app, told = App("shop"), Told()
    with inline_worker(app) as worker:
        CASES[name](app, told)
        with suppress(KeyboardInterrupt):
            worker.run_all(until_idle=True, raise_errors=False)
        return facts(app, told)


@pytest.mark.parametrize("name", CASES)
def test_the_same_comes_of_it_in_both_ways(name: str, server: str) -> None:
    here = in_this_thread(name)
    assert here["jobs"] or here["refused"]
    assert here == with_a_worker(name, server)


def test_the_cases_end_as_they_should() -> None:
    refused = in_this_thread("values_that_cannot_travel")["refused"]
    assert isinstance(refused, list)
    assert {kind for kind, _ in refused} == {"NotSerializable", "TypeError"}
    flaky, broken = in_this_thread("fails_twice_then_works"), in_this_thread("fails_always")
    assert (flaky["seen"], flaky["died"]) == ([1, 2, 3], [])
    assert broken["seen"] == [1, 2, 3]
    assert isinstance(broken["died"], list)
    assert len(broken["died"]) == 1
