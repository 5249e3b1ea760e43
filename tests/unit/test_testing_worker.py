"""Running jobs in the test's own thread: what runs, what reaches the test, and how time moves."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from freezegun import freeze_time

from tenure import App, current_job
from tenure.context import JobContext
from tenure.errors import BrokerUnavailable, Dead, Discard, JobFailed, ResultExpired, Retry, Snooze, WouldDeadlock
from tenure.testing import InlineWorker, JobDidNotRun, inline_worker

seen: list[Any] = []
mark: ContextVar[str] = ContextVar("mark", default="none")


@pytest.fixture
def app() -> App:
    seen.clear()
    return App("shop", broker="tenure://127.0.0.1:1")


@pytest.fixture
def worker(app: App) -> Iterator[InlineWorker]:
    with inline_worker(app) as worker:
        yield worker


def noting(app: App, **words: Any) -> Any:
    @app.task(name="note", **words)
    def note(value: object, times: int = 1) -> object:
        seen.append(value)
        return value

    return note


def test_jobs_run_in_this_thread_in_order_and_what_they_add_runs_too(app: App, worker: InlineWorker) -> None:
    @app.task(name="count_down")
    def count_down(number: int) -> int:
        seen.append((number, threading.current_thread() is threading.main_thread()))
        if number:
            count_down.delay(number - 1)
        return number

    job = count_down.delay(2)
    assert seen == []
    assert worker.run_all() == 3
    assert seen == [(2, True), (1, True), (0, True)]
    assert job.state() == "done"
    assert job.result(timeout=0) == 2
    assert worker.run_all() == 0


def test_a_job_in_a_queue_of_its_own_runs_as_well(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    note.options(queue="elsewhere").delay(1)
    assert worker.run_all() == 1


def test_arguments_go_over_the_wire(app: App, worker: InlineWorker) -> None:
    @app.task(name="change")
    def change(items: list[int]) -> None:
        items.append(9)
        seen.append(items)

    shared = [1]
    change.delay(shared)
    shared.append(2)
    worker.run_all()
    assert (shared, seen) == ([1, 2], [[1, 9]])


def test_a_job_that_fails_twice_ends_well_and_raises_nothing(app: App, worker: InlineWorker) -> None:
    died: list[object] = []

    @app.task(name="flaky", on_dead=lambda job, failure: died.append(job))
    def flaky() -> str:
        seen.append(current_job.attempt)
        if current_job.attempt < 3:
            raise ValueError("not yet")
        return "there"

    job = flaky.delay()
    before = worker.clock.wall()
    assert worker.run_all() == 3
    assert (seen, job.result(timeout=0), died) == ([1, 2, 3], "there", [])
    assert worker.clock.wall() - before > 1.0


def test_a_job_that_fails_for_good_raises_its_own_error_after_it_was_settled(app: App, worker: InlineWorker) -> None:
    died: list[tuple[str, str]] = []

    @app.task(name="broken", max_attempts=3, on_dead=lambda job, failure: died.append((job.id, failure.text)))
    def broken(order: int) -> None:
        seen.append(order)
        raise LookupError(f"order {order}")

    job = broken.delay(7)
    with pytest.raises(LookupError, match="order 7") as caught:
        worker.run_all()
    assert seen == [7, 7, 7]
    assert died == [(job.id, "order 7")]
    assert job.state() == "dead"
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "broken"
    assert not [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "executor" in frame.filename]
    with pytest.raises(JobFailed):
        job.result(timeout=0)
    assert worker.run_all() == 0


def test_the_other_jobs_run_at_the_next_call_or_at_once_without_errors(app: App, worker: InlineWorker) -> None:
    note = noting(app)

    @app.task(name="broken", max_attempts=1)
    def broken() -> None:
        raise LookupError

    broken.delay()
    note.delay(1)
    with pytest.raises(LookupError):
        worker.run_all()
    assert (seen, worker.run_all(), seen) == ([1], 1, [1])
    broken.delay()
    note.delay(2)
    assert worker.run_all(raise_errors=False) == 2
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("asked", "state", "raised"),
    [(Dead("no use"), "dead", Dead), (Discard("not wanted"), "cancelled", None), (SystemExit(3), "dead", SystemExit)],
)
def test_what_a_task_asks_for(app: App, worker: InlineWorker, asked: BaseException, state: str, raised: Any) -> None:
    @app.task(name="ask", max_attempts=2)
    def ask() -> None:
        raise asked

    job = ask.delay()
    if raised is None:
        worker.run_all()
    else:
        with pytest.raises(raised):
            worker.run_all()
    assert job.state() == state


def test_a_snoozed_job_waits_for_the_clock_and_a_retry_does_not(app: App, worker: InlineWorker) -> None:
    @app.task(name="nap")
    def nap() -> None:
        seen.append(current_job.fence)
        if current_job.fence == 1:
            raise Retry(delay=600)
        if current_job.fence == 2:
            raise Snooze(60)

    nap.delay()
    worker.run_all()
    assert seen == [1, 2]
    worker.clock.move(59)
    worker.run_all()
    assert seen == [1, 2]
    worker.clock.move(timedelta(seconds=2))
    worker.run_all()
    assert seen == [1, 2, 3]


def test_ctrl_c_and_pytest_s_own_outcomes_reach_the_test_at_once(app: App, worker: InlineWorker) -> None:
    @app.task(name="stop")
    def stop(how: str) -> None:
        seen.append(how)
        if how == "fail":
            pytest.fail("seen in a task")
        raise KeyboardInterrupt

    job = stop.delay("fail")
    with pytest.raises(pytest.fail.Exception, match="seen in a task"):
        worker.run_all(raise_errors=False)
    assert job.state() == "scheduled"
    worker.app.broker.admin().cancel(job.id)  # type: ignore[union-attr]
    stop.delay("ctrl c")
    with pytest.raises(KeyboardInterrupt):
        worker.run_all(raise_errors=False)
    assert seen == ["fail", "ctrl c"]


def test_delayed_jobs_wait_for_the_clock_or_for_until_idle(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    note.options(delay=3600).delay("hour")
    note.options(delay=timedelta(days=30)).delay("month")
    assert worker.run_all() == 0
    worker.clock.move(3601)
    assert worker.run_all() == 1
    before = worker.clock.wall()
    assert worker.run_all(until_idle=True) == 1
    assert seen == ["hour", "month"]
    assert worker.clock.wall() - before == pytest.approx(30 * 86400 - 3601, abs=5)


def test_a_retry_that_was_cancelled_moves_the_clock_to_no_other_job(app: App, worker: InlineWorker) -> None:
    note = noting(app)

    @app.task(name="broken")
    def broken() -> None:
        worker.broker.admin().cancel(current_job.id)
        raise LookupError

    note.options(delay=3600).delay(1)
    job = broken.delay()
    assert worker.run_all() == 1
    assert (job.state(), seen) == ("cancelled", [])


@pytest.mark.parametrize(
    ("seconds", "error", "says"),
    [
        (-1, ValueError, r"move\(-1\): time goes on only; give 0 or more"),
        (timedelta(days=-1), ValueError, "time goes on only"),
        (float("nan"), ValueError, r"move\(nan\).* number of seconds between 0 and"),
        (float("inf"), ValueError, r"move\(inf\).* year 9999"),
        (1e300, ValueError, r"move\(1e\+300\).* at most \d+ seconds"),
        (10**400, ValueError, r"move\(10+\.\.\.\).* at most \d+ seconds"),
        pytest.param(10**5000, ValueError, "year 9999", id="digits"),
        (timedelta.max, ValueError, "year 9999"),
        ("60", TypeError, r"move\('60'\): give seconds as a number, or a timedelta"),
        (None, TypeError, "a timedelta"),
        (True, TypeError, "a timedelta"),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    app: App, worker: InlineWorker, seconds: Any, error: type[Exception], says: str, frozen: bool
) -> None:
    note = noting(app)
    with freeze_time("2030-01-01") if frozen else nullcontext():
        note.options(delay=60).delay(1)
        before = worker.clock.wall()
        with pytest.raises(error, match=says):
            worker.clock.move(seconds)
        assert worker.clock.wall() - before < 50
        worker.clock.move(61)
        assert worker.run_all() == 1


def test_a_job_past_its_latest_start_is_dead(app: App, worker: InlineWorker) -> None:
    job = noting(app).options(expires=60).delay(1)
    worker.clock.move(61)
    assert worker.run_all() == 0
    assert (job.state(), seen) == ("dead", [])


def test_results_expire_by_the_clock(app: App, worker: InlineWorker) -> None:
    job = noting(app).delay(1)
    worker.run_all()
    worker.clock.move(5000)
    with pytest.raises(ResultExpired):
        job.result(timeout=0)


def test_the_calendar_of_a_task_moves_along_under_freezegun(app: App, worker: InlineWorker) -> None:
    @app.task(name="when")
    def when() -> None:
        seen.append(datetime.now(UTC))

    with freeze_time("2030-01-01 00:00"):
        when.options(delay=timedelta(hours=5)).delay()
        when.delay()
        worker.run_all(until_idle=True)
        assert [moment.hour for moment in seen] == [0, 5]
        when.options(run_at=datetime(2030, 1, 2, tzinfo=UTC)).delay()
        worker.clock.move(timedelta(hours=18))
        assert worker.run_all() == 0
        worker.clock.move(timedelta(hours=2))
        assert worker.run_all() == 1
        assert seen[-1].day == 2


def test_what_freezegun_itself_moves_is_seen_by_the_next_run(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    with freeze_time("2030-01-01") as frozen:
        note.options(delay=timedelta(days=1)).delay("ticked")
        note.options(delay=timedelta(days=3)).delay("moved to")
        note.options(delay=timedelta(days=5)).delay("another block")
        assert worker.run_all() == 0
        frozen.tick(timedelta(days=2))
        assert worker.run_all() == 1
        frozen.move_to("2030-01-04 12:00")
        assert worker.run_all() == 1
    with freeze_time("2030-01-07"):
        assert worker.run_all() == 1
    assert seen == ["ticked", "moved to", "another block"]


def test_a_task_that_moves_the_frozen_calendar_makes_others_due(app: App, worker: InlineWorker) -> None:
    with freeze_time("2030-01-01") as frozen:

        @app.task(name="ticking")
        def ticking() -> None:
            frozen.tick(timedelta(days=2))

        noting(app).options(delay=timedelta(days=1)).delay("due")
        ticking.delay()
        assert worker.run_all() == 2
    assert seen == ["due"]


def test_a_task_that_outlives_its_lease_sees_it_and_runs_again(app: App, worker: InlineWorker) -> None:
    @app.task(name="slow", visibility_timeout=30)
    def slow(context: JobContext) -> None:
        seen.append(context.lease_lost)
        if context.fence == 1:
            worker.clock.move(31)
            seen.append(context.lease_lost)

    job = slow.delay()
    assert worker.run_all() == 2
    assert seen == [False, True, False]
    assert worker.broker.admin().job(job.id)["losses"] == 1  # type: ignore[index]


def test_run_twice_shows_whether_a_task_may_be_repeated(app: App, worker: InlineWorker) -> None:
    @app.task(name="charge")
    def charge(order: int) -> int:
        seen.append((order, current_job.id, current_job.key, current_job.fence))
        return order

    job = charge.delay(1)
    other = charge.delay(2)
    worker.run_twice(job)
    assert [entry for entry in seen if entry[0] == 1] == [(1, job.id, job.id, 1), (1, job.id, job.id, 2)]
    assert [entry[0] for entry in seen].count(2) == 1
    assert job.result(timeout=0) == 1
    worker.run_twice(other.id)  # it is done already
    worker.run_twice(other.id)
    assert [entry[3] for entry in seen if entry[0] == 2] == [1, 2, 3]
    assert other.state() == "done"


def test_run_twice_raises_what_only_the_second_run_raises(app: App, worker: InlineWorker) -> None:
    @app.task(name="once", max_attempts=2)
    def once() -> None:
        seen.append(1)
        assert len(seen) == 1, "not safe to repeat"

    job = once.delay()
    with pytest.raises(AssertionError, match="not safe to repeat"):
        worker.run_twice(job)
    seen.clear()
    job = once.delay()
    worker.run_all()
    with pytest.raises(AssertionError, match="not safe to repeat"):
        worker.run_twice(job)


def test_run_twice_says_why_it_could_not(app: App, worker: InlineWorker) -> None:
    with pytest.raises(JobDidNotRun, match="was not added in this test"):
        worker.run_twice("0" * 32)
    job = noting(app).options(delay=60).delay(1)
    with pytest.raises(JobDidNotRun, match="it is scheduled"):
        worker.run_twice(job)


def test_async_tasks_run_in_one_loop_also_inside_of_a_test_s_own(app: App, worker: InlineWorker) -> None:
    @app.task(name="co")
    async def co(number: int) -> int:
        await asyncio.sleep(0)
        seen.append(asyncio.get_running_loop())
        if number < 0:
            raise ValueError("below zero")
        return number

    first = co.delay(1)
    worker.run_all()

    async def test() -> int:
        second = await co.adelay(2)
        worker.run_all()
        return await second.aresult(timeout=5)

    assert asyncio.run(test()) == 2
    assert first.result(timeout=0) == 1
    assert len(set(seen)) == 1
    co.options(max_attempts=1).delay(-1)
    with pytest.raises(ValueError, match="below zero") as caught:
        worker.run_all()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "co"


def test_context_variables_neither_come_in_nor_leak(app: App, worker: InlineWorker) -> None:
    @app.task(name="plain")
    def plain() -> None:
        seen.append(mark.get())
        mark.set("task")

    @app.task(name="co")
    async def co() -> None:
        seen.append(mark.get())
        mark.set("task")

    token = mark.set("test")
    plain.delay()
    co.delay()
    plain.delay()
    worker.run_all()
    assert seen == ["none", "none", "none"]
    assert mark.get() == "test"
    mark.reset(token)


def test_the_hooks_of_a_worker_process_run_around_the_jobs(app: App) -> None:
    note = noting(app)
    app.on_worker_start(lambda: seen.append("start"))

    @app.on_worker_start
    async def open_pool() -> None:
        seen.append("pool")

    app.on_worker_stop(lambda: seen.append("stop"))
    with inline_worker(app) as worker:
        note.delay(1)
        worker.run_all()
        note.delay(2)
        worker.run_all()
    with inline_worker(app):
        pass
    assert seen == ["start", "pool", 1, 2, "stop"]


def test_a_job_that_waits_for_another_is_told_at_once(app: App, worker: InlineWorker) -> None:
    note = noting(app)

    @app.task(name="parent", max_attempts=1)
    def parent() -> None:
        note.delay(1).result()

    parent.delay()
    with pytest.raises(WouldDeadlock):
        worker.run_all()


def test_a_job_without_a_task_here_is_an_error_of_the_test(app: App, worker: InlineWorker) -> None:
    other = App("other", broker=worker.broker)
    noting(other).delay(1)
    with pytest.raises(JobDidNotRun, match="no task note; import the module"):
        worker.run_all()


def test_a_call_that_fits_no_more_is_dead_and_an_error_of_the_test(app: App, worker: InlineWorker) -> None:
    @app.task(name="note")
    def note(one: int, two: int) -> None:
        seen.append(one)

    other = App("other", broker=worker.broker)
    job = noting(other).options(max_attempts=1).delay(1)
    with pytest.raises(JobDidNotRun, match="note is dead: bad arguments"):
        worker.run_all()
    admin = worker.broker.admin()
    found = admin.job(job.id)
    assert found is not None
    assert (found["state"], found["attempts"], found["losses"]) == ("dead", 0, 0)


def test_a_dead_call_runs_once_the_function_takes_it_again(app: App, worker: InlineWorker) -> None:
    def load(signature: str) -> None:
        """Define the task as its module does when it is loaded, in this version."""
        names: dict[str, Any] = {}
        exec(compile(f"def note({signature}): return [to, text]", "shop.py", "exec"), names)
        app.task(name="note")(names["note"])

    load("to, text")
    job = app.send("note", [], {"to": "ann", "text": "hello"})
    load("to, body")
    worker.run_all(raise_errors=False)
    assert job.state() == "dead"
    load("to, text")
    assert worker.broker.admin().requeue(job.id) == "ready"
    worker.run_all()
    assert job.result(timeout=0) == ["ann", "hello"]


def test_jobs_that_add_each_other_for_ever_are_stopped(app: App, worker: InlineWorker) -> None:
    @app.task(name="again")
    def again() -> None:
        again.delay()

    again.delay()
    with pytest.raises(JobDidNotRun, match="run_all has run 50 jobs and comes to no end"):
        worker.run_all(limit=50)


def test_a_real_worker_runs_inside_of_running(app: App, worker: InlineWorker) -> None:
    @app.task(name="slow")
    def slow(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return number

    jobs = [slow.delay(number) for number in range(20)]
    with worker.running(threads=4):
        assert [job.result(timeout=10) for job in jobs] == list(range(20))


def test_a_real_worker_goes_by_the_moved_clock(app: App, worker: InlineWorker) -> None:
    @app.task(name="slow", visibility_timeout=30, on_lease_lost="finish")
    def slow(context: JobContext) -> None:
        seen.append((context.fence, context.lease_lost))
        if context.fence == 1:
            worker.clock.move(31)
            seen.append(context.lease_lost)

    worker.clock.move(10_000)
    job = slow.options(delay=60).delay()
    with worker.running(threads=1):
        worker.clock.move(61)
        assert job.wait(timeout=3600) == "done"
    assert seen == [(1, False), True, (2, False)]


def test_a_moved_clock_ends_no_lease_of_a_worker_that_lives(app: App, worker: InlineWorker) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    @app.task(name="plain", visibility_timeout=5)
    def plain(context: JobContext) -> None:
        begun.release()
        assert go_on.wait(10)
        seen.append((context.fence, context.lease_lost))

    @app.task(name="awaits", visibility_timeout=5)
    async def awaits(context: JobContext) -> None:
        begun.release()
        assert await asyncio.to_thread(go_on.wait, 10)
        seen.append((context.fence, context.lease_lost))

    jobs = [plain.delay(), awaits.delay()]
    with worker.running(threads=2):
        for _ in jobs:
            assert begun.acquire(timeout=10)
        later = plain.options(delay=3600).delay()
        for seconds in (4, 4, 3600, 86_400):
            worker.clock.move(seconds)
        go_on.set()
        assert [job.wait(timeout=10) for job in [*jobs, later]] == ["done"] * 3
    assert seen == [(1, False)] * 3
    assert [worker.broker.admin().job(job.id)["losses"] for job in jobs] == [0, 0]  # type: ignore[index]


def test_nor_of_one_that_was_given_its_job_just_now(app: App, worker: InlineWorker) -> None:
    @app.task(name="short", visibility_timeout=5)
    def short(number: int) -> None:
        seen.append(number)

    with worker.running(threads=2):
        for number in range(100):
            job = short.delay(number)
            worker.clock.move(6 if number % 2 else 60)
            assert job.wait(timeout=10) == "done"
    assert seen == list(range(100))


def test_time_limits_are_kept_inside_of_running_alone(app: App, worker: InlineWorker) -> None:
    @app.task(name="spin", timeout=0.05, max_attempts=1)
    def spin() -> float:
        end = time.monotonic() + (60.0 if threading.current_thread() is not threading.main_thread() else 0.1)
        while time.monotonic() < end:
            pass
        return end

    with worker.running(threads=1), pytest.raises(JobFailed, match="longer than its time limit"):
        spin.delay().result(timeout=10)
    job = spin.delay()
    worker.run_all()
    assert job.state() == "done"


def test_an_app_that_closes_its_broker_loses_nothing(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    note.delay(1)
    app.close()
    note.delay(2)
    assert worker.run_all() == 2


def test_the_app_s_own_broker_comes_back_afterwards(app: App) -> None:
    with inline_worker(app):
        assert app.broker.capabilities.keeps_record
    assert app.broker_url == "tenure://127.0.0.1:1"
    app.close()
    with inline_worker(app) as outer, inline_worker(app) as inner:
        noting(app).delay(1)
        assert (len(outer.added()), len(inner.added())) == (0, 1)


def test_nothing_is_left_of_the_jobs_of_a_test(app: App) -> None:
    note = noting(app)
    with inline_worker(app) as worker:
        job = note.delay(1)
        worker.run_all()
    with pytest.raises(BrokerUnavailable):
        worker.broker.add([worker.added()[0].message])
    with inline_worker(app) as worker:
        assert worker.state(job) == "unknown"


def test_assert_added_takes_a_call_as_it_may_be_written(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    note.delay((1, float("nan")))
    note.delay("x", times=2)
    note.delay("x", times=2)
    worker.assert_added(note, (1, float("nan")))
    worker.assert_added(note, value="x", times=2)
    worker.assert_added(note, "x", 2, count=2)
    worker.assert_added(note, ANY, count=1)
    worker.assert_added(note, "x", pytest.approx(2.0000001))
    worker.assert_added(note, "y", count=0)
    assert [str(call) for call in worker.added(note)] == ["note((1, nan))", "note('x', times=2)", "note('x', times=2)"]
    with pytest.raises(TypeError):
        worker.assert_added(note)


def test_assert_added_shows_what_was_added_instead(app: App, worker: InlineWorker) -> None:
    note = noting(app)

    @app.task(name="mail")
    def mail(to: str) -> None:
        seen.append(to)

    def failure(*args: object, **words: Any) -> str:
        with pytest.raises(AssertionError) as caught:
            worker.assert_added(*args, **words)  # type: ignore[arg-type]
        return str(caught.value)

    assert failure(note, 1) == "note(1) was not added\nno job was added at all"
    mail.delay("ann")
    assert failure(note, 1) == "note(1) was not added\nthis task was not added at all; others were:\n  mail('ann')"
    for number in range(25):
        note.delay(number)
    lines = failure(note, 99).splitlines()
    assert lines[:3] == ["note(99) was not added", "this task was added with:", "  note(0)"]
    assert lines[-1] == "  and 5 more"
    assert failure(note, 1, count=2).startswith("note(1) was added once, expected 2\n")
    assert failure(note, 1, count=0).startswith("note(1) was added once, not expected at all\n")


def test_a_duplicate_is_not_added_twice(app: App, worker: InlineWorker) -> None:
    note = noting(app)
    note.options(key="k").delay(1)
    assert not note.options(key="k").delay(1).created
    worker.assert_added(note, 1, count=1)
