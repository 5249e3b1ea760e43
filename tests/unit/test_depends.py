"""Parameters that the worker fills: where they may stand, what callers see of them, when they open and close."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest

from tenure import App, Depends, JobContext, TaskDefinitionError, TaskGroup
from tenure.signature import NO_OPTIONS
from tenure.testing import InlineWorker, inline_worker
from tests.unit.fake_broker import FakeBroker

seen: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    seen.clear()


@pytest.fixture
def app() -> App:
    return App("shop")


def made() -> str:
    seen.append("made")
    return f"value {seen.count('made')}"


def opened() -> Iterator[str]:
    seen.append("open")
    try:
        yield f"db {seen.count('open')}"
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        seen.append("close")


async def afetched() -> str:
    await asyncio.sleep(0)
    seen.append("fetched")
    return "token"


async def aopened(token: str = Depends(afetched)) -> AsyncIterator[str]:
    await asyncio.sleep(0)
    seen.append("aopen")
    yield f"client with {token}"
    await asyncio.sleep(0)
    seen.append("aclose")


Db = Annotated[str, Depends(opened)]


def run(worker: InlineWorker, job: Any) -> Any:
    worker.run_all(raise_errors=False)
    return job.result(timeout=5)


# ------------------------------------------------------------------------------------------- what callers see of it


def test_it_is_no_part_of_the_call(app: App) -> None:
    with_it = app.task(name="charge")(charge)
    without = App("shop", broker=FakeBroker()).task(name="charge")(lambda order_id, cents=5: None)
    one, other = (task.message((7,), {}, NO_OPTIONS) for task in (with_it, without))
    assert (one.args, one.fingerprint) == (other.args, other.fingerprint)
    assert with_it.s(7).args == (7,)


def charge(order_id: int, cents: int = 5, db: str = Depends(opened)) -> str:
    return f"{order_id} {cents} {db}"


def keywords(order_id: int, *, db: Db, **more: int) -> str:
    return f"{order_id} {sorted(more)} {db}"


def anywhere(*numbers: int, db: Db) -> str:
    return f"{numbers} {db}"


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "result"),
    [
        (charge, (7,), {}, "7 5 db 1"),
        (charge, (7,), {"cents": 6}, "7 6 db 1"),
        (keywords, (7,), {"a": 1}, "7 ['a'] db 1"),
        (anywhere, (1, 2), {}, "(1, 2) db 1"),
    ],
)
def test_a_worker_fills_it(app: App, function: Any, args: Any, kwargs: Any, result: str) -> None:
    task = app.task(name="task")(function)
    with inline_worker(app) as worker:
        assert run(worker, task.delay(*args, **kwargs)) == result
    assert seen == ["open", "close"]


@pytest.mark.parametrize("function", [charge, keywords])
def test_giving_it_in_a_call_is_refused(function: Any) -> None:
    task = App("shop", broker=FakeBroker()).task(name="task")(function)
    for call in (task.delay, task.s, task.options(priority=1).delay):
        with pytest.raises(TypeError, match=r"task\(\) got 'db', which a worker fills \(Depends\); leave it out"):
            call(7, db="mine")


def test_giving_it_by_its_place_is_refused() -> None:
    task = App("shop", broker=FakeBroker()).task(name="task")(charge)
    with pytest.raises(TypeError, match=r"too many positional arguments; a worker fills db \(Depends\)"):
        task.delay(7, 5, "mine")


def test_a_key_is_made_without_it() -> None:
    broker = FakeBroker()
    app = App("shop", broker=broker)
    task = app.task(name="task", key=lambda order_id, cents: f"{order_id}-{cents}")(charge)
    task.delay(7)
    assert broker.last.key == "7-5"


def test_a_direct_call_has_to_give_it(app: App) -> None:
    task = app.task(name="task")(charge)
    assert task(7, db="mine") == "7 5 mine"
    assert task(7, 5, "mine") == "7 5 mine"
    with pytest.raises(TypeError, match=r"task\(\) was called directly, where no worker fills db; pass it by name"):
        task(7)
    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        task(db="mine")  # type: ignore[call-arg]


def test_a_task_of_a_group_may_have_it_too(app: App) -> None:
    group = TaskGroup("mail")
    task = group.task(name="charge")(charge)
    app.add_group(group)
    with inline_worker(app) as worker:
        assert run(worker, task.delay(7)) == "7 5 db 1"


# ------------------------------------------------------------------------------------------------ open and close


def test_each_job_has_its_own(app: App) -> None:
    task = app.task(name="task")(charge)
    with inline_worker(app) as worker:
        assert run(worker, task.delay(7)) == "7 5 db 1"
        assert run(worker, task.delay(7)) == "7 5 db 2"
        assert seen == ["open", "close", "open", "close"]


def test_a_process_has_one_until_its_end(app: App) -> None:
    @app.task(name="task")
    def task(db: str = Depends(opened, per="process"), value: str = Depends(made, per="process")) -> str:
        seen.append("job")
        return db + value

    app.on_worker_stop(lambda: seen.append("stop hook"))
    with inline_worker(app) as worker:
        assert seen == []
        assert run(worker, task.delay()) == run(worker, task.delay()) == "db 1value 1"
    assert seen == ["open", "made", "job", "job", "close", "stop hook"]


def test_what_the_job_raises_comes_to_the_generator(app: App) -> None:
    @app.task(name="task", max_attempts=1)
    def task(db: str = Depends(opened)) -> None:
        raise KeyError(db)

    with inline_worker(app) as worker:
        task.delay()
        with pytest.raises(KeyError, match="db 1"):
            worker.run_all()
    assert seen == ["open", "KeyError", "close"]


def swallows() -> Iterator[str]:
    try:
        yield "db"
    except ValueError:
        seen.append("swallowed")


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_generator_that_swallows_it_makes_no_success_of_it(app: App, kind: str) -> None:
    def plain(db: str = Depends(swallows)) -> None:
        raise ValueError("no")

    async def coroutine(db: str = Depends(swallows)) -> None:
        raise ValueError("no")

    task: Any = app.task(name="task", max_attempts=1)(plain if kind == "plain" else coroutine)
    with inline_worker(app) as worker:
        job = task.delay()
        with pytest.raises(ValueError, match="no"):
            worker.run_all()
        assert worker.state(job) == "dead"
    assert seen == ["swallowed"]


def test_what_fails_while_it_closes_is_the_jobs_failure(app: App) -> None:
    def commits() -> Iterator[str]:
        yield "db"
        raise OSError("the commit failed")

    @app.task(name="task", max_attempts=1)
    def task(db: str = Depends(commits)) -> str:
        return db

    with inline_worker(app) as worker:
        task.delay()
        with pytest.raises(OSError, match="the commit failed"):
            worker.run_all()


def test_what_fails_while_it_opens_is_the_jobs_failure_and_the_next_attempt_opens_anew(app: App) -> None:
    tries: list[int] = []

    def connects() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "connected"

    @app.task(name="task")
    def task(db: str = Depends(opened), link: str = Depends(connects, per="process")) -> str:
        return link

    with inline_worker(app) as worker:
        assert run(worker, task.delay()) == "connected"
        assert run(worker, task.delay()) == "connected"
    assert len(tries) == 2
    assert seen == ["open", "ConnectionError", "close", "open", "close", "open", "close"]


def test_the_last_one_opened_is_closed_first_and_what_two_need_is_made_once(app: App) -> None:
    def base() -> Iterator[str]:
        seen.append("base")
        yield "base"
        seen.append("/base")

    def left(base: str = Depends(base)) -> Iterator[str]:
        seen.append("left")
        yield f"{base} left"
        seen.append("/left")

    def right(ctx: JobContext, base: str = Depends(base)) -> str:
        return f"{ctx.task} {base} right"

    @app.task(name="task")
    def task(ctx: JobContext, n: int, one: str = Depends(left), two: str = Depends(right)) -> str:
        return f"{n} {ctx.task} {one}, {two}"

    with inline_worker(app) as worker:
        assert run(worker, task.delay(1)) == "1 task base left, task base right"
    assert seen == ["base", "left", "/left", "/base"]


def test_coroutines_may_have_both_kinds(app: App) -> None:
    @app.task(name="task")
    async def task(n: int, client: str = Depends(aopened), db: str = Depends(opened)) -> str:
        await asyncio.sleep(0)
        seen.append("job")
        return f"{n} {client} {db}"

    with inline_worker(app) as worker:
        assert run(worker, task.delay(7)) == "7 client with token db 1"
    assert seen == ["fetched", "aopen", "open", "job", "close", "aclose"]


def test_a_process_opens_an_async_one_once_for_all_its_coroutines(app: App) -> None:
    async def slow() -> AsyncIterator[str]:
        seen.append("opening")
        await asyncio.sleep(0.01)
        yield "pool"
        seen.append("closed")

    @app.task(name="task")
    async def task(n: int, pool: str = Depends(slow, per="process")) -> str:
        return f"{pool} {n}"

    with inline_worker(app) as worker:
        jobs = [task.delay(n) for n in range(5)]
        with worker.running(threads=1):
            assert [job.result(timeout=10) for job in jobs] == [f"pool {n}" for n in range(5)]
    assert seen == ["opening", "closed"]


def test_threads_that_need_it_at_once_open_it_once(app: App) -> None:
    both = threading.Barrier(2, timeout=10)

    def slow() -> str:
        seen.append("opening")
        return "pool"

    def waits(barrier: str = Depends(lambda: str(both.wait()))) -> str:
        return barrier

    @app.task(name="task")
    def task(barrier: str = Depends(waits), pool: str = Depends(slow, per="process")) -> str:
        return pool

    with inline_worker(app) as worker:
        jobs = [task.delay(), task.delay()]
        with worker.running(threads=2):
            assert [job.result(timeout=10) for job in jobs] == ["pool", "pool"]
    assert seen == ["opening"]


def test_middleware_is_around_it(app: App) -> None:
    @app.middleware
    def layer(context: JobContext, call_next: Callable[[], Any]) -> Any:
        seen.append("before")
        try:
            return call_next()
        finally:
            seen.append("after")

    task = app.task(name="task")(charge)
    with inline_worker(app) as worker:
        assert run(worker, task.delay(7)) == "7 5 db 1"
    assert seen == ["before", "open", "close", "after"]


def test_one_that_cannot_be_closed_at_the_end_is_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[str]:
        yield "db"
        raise OSError("cannot close")

    @app.task(name="task")
    def task(first: str = Depends(opened, per="process"), db: str = Depends(broken, per="process")) -> str:
        return db

    with inline_worker(app) as worker:
        run(worker, task.delay())
    assert "could not be closed" in caplog.text
    assert "OSError: cannot close" in caplog.text
    assert seen == ["open", "OSError", "close"]


# ---------------------------------------------------------------------------------------------------- in tests


@pytest.mark.parametrize("per", ["job", "process"])
def test_a_test_may_put_another_in_its_place(app: App, per: Any) -> None:
    def fake() -> Iterator[str]:
        seen.append("fake")
        yield "fake"
        seen.append("/fake")

    @app.task(name="task")
    def task(db: str = Depends(opened, per=per)) -> str:
        return db

    with app.override(opened, fake), inline_worker(app) as worker:
        assert run(worker, task.delay()) == run(worker, task.delay()) == "fake"
        with app.override(opened, lambda: "inner"):
            assert run(worker, task.delay()) == "inner"
        assert run(worker, task.delay()) == "fake"
    assert seen == ["fake", "/fake"] * (3 if per == "job" else 1)
    with inline_worker(app) as worker:
        assert run(worker, task.delay()) == "db 1"


def test_also_for_what_another_one_needs(app: App) -> None:
    @app.task(name="task")
    async def task(client: str = Depends(aopened)) -> str:
        return client

    with app.override(afetched, lambda: "fake"), inline_worker(app) as worker:
        assert run(worker, task.delay()) == "client with fake"


def test_an_async_one_cannot_stand_in_for_a_plain_tasks(app: App) -> None:
    task = app.task(name="task", max_attempts=1)(charge)
    with app.override(opened, afetched), inline_worker(app) as worker:
        task.delay(7)
        with pytest.raises(TypeError, match=r"task is a plain function.*override it with a plain function"):
            worker.run_all()


def test_what_can_be_no_factory_cannot_stand_in(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match="Depends takes a function"), app.override(opened, 5):  # type: ignore[arg-type]
        raise AssertionError("it must not get here")
    assert app.overrides == {}


# ------------------------------------------------------------------------------------------------- definition


def misplaced(db: Db, order_id: int) -> None: ...


def before_more(db: str = Depends(made), *more: int) -> None: ...


def by_place_alone(order_id: int, db: str = Depends(made), /) -> None: ...


def between(order_id: int, db: str = Depends(made), cents: int = 5) -> None: ...


@pytest.mark.parametrize("function", [misplaced, before_more, by_place_alone, between])
def test_it_comes_after_what_callers_give(app: App, function: Any) -> None:
    with pytest.raises(TaskDefinitionError, match=r"parameter db is filled by a worker.*put it last, or behind a \*"):
        app.task(name="task")(function)


def test_a_plain_task_cannot_have_an_async_one(app: App) -> None:
    def needs(client: str = Depends(aopened)) -> str:
        return client

    for factory in (afetched, aopened, needs):
        with pytest.raises(TaskDefinitionError, match=r"task is a plain function, and its parameter db has to be"):
            app.task(name="task")(_with(factory))


def _with(factory: Any, **words: Any) -> Any:
    def task(db: str = Depends(factory, **words)) -> None: ...

    return task


def of_job(ctx: JobContext) -> str:
    return ctx.id


def of_job_too(db: str = Depends(opened)) -> str:
    return db


@pytest.mark.parametrize("factory", [of_job, of_job_too])
def test_a_process_cannot_have_what_is_a_jobs(app: App, factory: Any) -> None:
    with pytest.raises(TaskDefinitionError, match=rf"Depends\({factory.__name__}, per=\"process\"\) needs something"):
        app.task(name="task")(_with(factory, per="process"))


def needs_more(url: str, db: Db) -> str:
    return url


def test_a_factory_is_given_nothing_else(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match=r"Depends\(needs_more\): missing a required argument: 'url'"):
        app.task(name="task")(_with(needs_more))
    task = app.task(name="bound")(_with(functools.partial(needs_more, "here")))
    assert list(task.recipes) == ["db"]


@pytest.mark.parametrize("wrong", [5, "open_db", Depends(made), [made]])
def test_what_is_no_function_is_refused(wrong: Any) -> None:
    with pytest.raises(TaskDefinitionError, match="Depends takes a function that makes the value"):
        Depends(wrong)
    with pytest.raises(TaskDefinitionError, match=r'Depends\(per="?\'?thread\'?"?\) has to be "job" or "process"'):
        Depends(made, per="thread")  # type: ignore[arg-type]


def test_what_needs_itself_is_refused(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match=r"goes_round needs goes_round, which comes to no end"):
        app.task(name="task")(_with(goes_round))


def goes_round(again: Annotated[str, Depends(lambda: None)]) -> str:
    return again


goes_round.__annotations__["again"] = Annotated[str, Depends(goes_round)]
