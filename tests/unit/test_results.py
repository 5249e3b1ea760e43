"""A job's handle: state, result, progress and errors, with a store that a test fills by hand."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tenure import (
    App,
    BrokerUnavailable,
    ConfigError,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultError,
    ResultExpired,
    ResultNotStored,
    ResultsDisabled,
    ResultTimeout,
    WouldDeadlock,
    as_completed,
)
from tenure import job as job_module
from tenure.broker import JobState, ResultStore
from tenure.codec import pack_failure, pack_not_stored, pack_value
from tenure.context import Progress, pack_progress
from tenure.ids import new_id
from tenure.outcome import failure_from
from tests.unit.fake_broker import FakeBroker


class Store:
    """States by id; `wait` gives those of `later` to the jobs that it waits for, one a call."""

    def __init__(self) -> None:
        self.known: dict[str, JobState] = {}
        self.later: list[JobState] = []
        self.waits: list[float] = []
        self.error: Exception | None = None

    def states(self, ids: Sequence[str]) -> list[JobState]:
        if self.error is not None:
            raise self.error
        return [self.known.get(id, JobState(id, "unknown")) for id in ids]

    def wait(self, ids: Sequence[str], seconds: float) -> list[JobState]:
        self.waits.append(seconds)
        if self.later:
            state = self.later.pop(0)
            self.known[state.id] = state
        elif seconds < 1:
            threading.Event().wait(seconds)
        return self.states(ids)


class Broker(FakeBroker):
    def __init__(self) -> None:
        super().__init__()
        self.store: ResultStore | None = Store()

    def results(self) -> ResultStore | None:
        return self.store


@pytest.fixture
def app() -> Iterator[App]:
    app = App(f"results {new_id()}", broker=Broker())
    yield app
    app.close()


@pytest.fixture
def store(app: App) -> Store:
    store = app.broker.results()
    assert isinstance(store, Store)
    return store


@pytest.fixture
def job(app: App, store: Store) -> Job[int]:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    job = double.delay(2)
    store.known[job.id] = JobState(job.id, "running")
    return job


def test_a_result_is_waited_for(job: Job[int], store: Store) -> None:
    store.later = [JobState(job.id, "running"), JobState(job.id, "done", 1, result=pack_value(4))]
    assert job.result() == 4
    assert (job.state(), job.wait()) == ("done", "done")
    assert len(store.waits) == 3


def test_a_result_that_is_none(job: Job[int], store: Store) -> None:
    store.known[job.id] = JobState(job.id, "done", 1)
    assert job.result() is None


@pytest.mark.parametrize("timeout", [0, 0.05, timedelta(milliseconds=50)])
def test_a_job_that_has_not_ended_in_time(job: Job[int], store: Store, timeout: Any) -> None:
    began = time.monotonic()
    with pytest.raises(ResultTimeout, match="it is running, and goes on") as raised:
        job.result(timeout)
    assert time.monotonic() - began < 0.3
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.id == job.id
    assert job.wait(timeout) == "running"


@pytest.mark.parametrize(
    ("queue", "full", "words"),
    [
        ("web", False, "no worker has taken it: does one run that takes queue web and has a free slot for its task?"),
        ("", False, "no worker has taken it: does one run that takes its queue and has a free slot"),
        ("web", True, "and no slot of this worker is free to take it"),
    ],
)
def test_a_job_that_has_not_begun_in_time(
    job: Job[int], store: Store, monkeypatch: pytest.MonkeyPatch, queue: str, full: bool, words: str
) -> None:
    store.known[job.id] = JobState(job.id, "ready")
    monkeypatch.setattr(job_module, "would_deadlock", lambda task, queue: full)
    with pytest.raises(ResultTimeout) as raised:
        replace(job, queue=queue).result(0)
    assert words in str(raised.value)
    assert "it is ready, and" in str(raised.value)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True])
def test_a_timeout_that_is_none(job: Job[int], timeout: Any) -> None:
    for call in (job.result, job.wait, lambda given: as_completed([job], given)):
        with pytest.raises(ConfigError, match="timeout="):
            call(timeout)


def test_a_broker_that_does_not_answer(job: Job[int], store: Store) -> None:
    store.error = BrokerUnavailable("no answer")
    with pytest.raises(BrokerUnavailable):
        job.result()
    with pytest.raises(ResultTimeout, match=r"could not be asked within 0\.01 s: no answer") as raised:
        job.result(0.01)
    assert raised.value.__cause__ is store.error


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (("unknown",), JobNotFound, "is known here"),
        (("expired",), ResultExpired, "kept for a while only"),
        (("cancelled", 1, 0, "not wanted"), JobCancelled, "was cancelled: not wanted"),
        (("dead", 0, 5, "worker lost (SIGKILL)"), JobFailed, r"failed for good: worker lost \(SIGKILL\)"),
        (("done", 1, 0, "", pack_not_stored("not storable", "a lambda")), ResultNotStored, "a lambda"),
        (("done", 1, 0, "", pack_not_stored("too large", "2 MiB")), ResultNotStored, "too large"),
        (("done", 1, 0, "", pack_not_stored("disabled", "results=False")), ResultsDisabled, "results=False"),
        (("done", 1, 0, "", b"\xc1"), ResultError, "cannot be read here"),
    ],
)
def test_why_there_is_no_result(
    job: Job[int], store: Store, state: tuple[Any, ...], error: type[ResultError], text: str
) -> None:
    store.known[job.id] = JobState(job.id, *state)
    with pytest.raises(error, match=text) as raised:
        job.result()
    assert type(raised.value) is error
    assert raised.value.id == job.id
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.id) == (error, str(raised.value), job.id)
    if state[0] in ("unknown", "expired"):
        for ask in (job.state, job.wait, job.progress):
            with pytest.raises(error):
                ask()
    else:
        assert job.wait() == job.state() == state[0]


def test_a_failed_job_has_its_error_as_cause(job: Job[int], store: Store) -> None:
    try:
        raise KeyError("order")
    except KeyError as raised:
        packed = pack_failure(failure_from(raised))
    store.known[job.id] = JobState(job.id, "dead", 1, 0, "gave up after 1 attempt: KeyError", failure=packed)
    with pytest.raises(JobFailed) as error:
        job.result()
    assert isinstance(error.value.__cause__, KeyError)
    assert error.value.__cause__.args == ("order",)
    assert 'raise KeyError("order")' in str(error.value)


def test_progress(job: Job[int], store: Store) -> None:
    assert job.progress() is None
    store.known[job.id] = JobState(job.id, "running", progress=pack_progress(Progress(3, 7, "pages")))
    assert job.progress() == Progress(3, 7, "pages")


def test_a_task_without_results_says_so_at_once(app: App, store: Store) -> None:
    @app.task(results=False)
    def silent() -> int:
        return 1

    job = silent.delay()
    store.known[job.id] = JobState(job.id, "done", 1, result=pack_not_stored("disabled", "x"))
    with pytest.raises(ResultsDisabled, match="keeps no results"):
        job.result()
    with pytest.raises(ResultsDisabled, match="keeps no results"):
        asyncio.run(job.aresult())
    assert store.waits == []
    assert job.wait() == "done"


def test_a_broker_that_keeps_no_results(app: App, job: Job[int]) -> None:
    app.broker.store = None  # type: ignore[attr-defined]
    with pytest.raises(ResultsDisabled, match="the broker keeps no results"):
        job.result()


def test_waiting_inside_of_a_job_without_a_free_slot(
    job: Job[int], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def would_deadlock(task: str | None, queue: str | None) -> bool:
        asked.append((task, queue))
        return True

    monkeypatch.setattr(job_module, "would_deadlock", would_deadlock)
    store.known[job.id] = JobState(job.id, "ready")
    for call in (job.result, job.wait, lambda: list(as_completed([job])), lambda: asyncio.run(job.aresult())):
        with pytest.raises(WouldDeadlock, match="no slot of this worker is free to take it"):
            call()
    assert set(asked) == {(job.task, job.queue)}
    assert job.wait(0) == "ready"
    store.known[job.id] = JobState(job.id, "done", 1, result=pack_value(4))
    assert (job.result(), job.wait(), list(as_completed([job])), asyncio.run(job.aresult())) == (4, "done", [job], 4)
    assert store.waits == []


def test_a_job_that_was_taken_meanwhile_is_what_fills_the_last_slot(
    job: Job[int], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ready when it was looked at, and runs by the time that the slots are counted."""

    def would_deadlock(task: str | None, queue: str | None) -> bool:
        looks.append(store.known[job.id].state)
        if len(looks) == 2:
            store.known[job.id] = JobState(job.id, "running")
        return True

    monkeypatch.setattr(job_module, "would_deadlock", would_deadlock)
    calls: tuple[Callable[[], object], ...] = (
        lambda: job.result(0.01), lambda: list(as_completed([job], 0.01)), lambda: asyncio.run(job.aresult(0.01)),
    )  # fmt: skip
    for call in calls:
        looks: list[str] = []
        store.known[job.id] = JobState(job.id, "ready")
        with pytest.raises(ResultTimeout):
            call()
        assert looks[:2] == ["ready", "ready"]


def test_what_counts_inside_of_a_job_is_the_queue_in_which_the_job_really_is(
    job: Job[int], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A duplicate's handle names the queue of its own call, and a bare id's none."""
    monkeypatch.setattr(job_module, "current_job", True)
    monkeypatch.setattr(job_module, "would_deadlock", lambda task, queue: queue == "full")
    for handle in (replace(job, created=False), replace(job, queue="")):
        store.known[job.id] = JobState(job.id, "ready", queue="full")
        calls: tuple[Callable[[], object], ...] = (handle.result, handle.wait, partial(list, as_completed([handle])))
        for call in calls:
            with pytest.raises(WouldDeadlock):
                call()
        with pytest.raises(WouldDeadlock):
            asyncio.run(handle.aresult())
        store.known[job.id] = JobState(job.id, "ready", queue="free")
        with pytest.raises(ResultTimeout, match="queue free"):
            handle.result(0.01)


def test_an_event_loop_goes_on_while_it_waits(job: Job[int], store: Store) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(ids: Sequence[str], seconds: float) -> list[JobState]:
        entered.set()
        go_on.wait(5)
        return [JobState(id, "done", 1, result=pack_value(4)) for id in ids]

    store.wait = wait  # type: ignore[method-assign]

    async def main() -> int:
        waiting = [asyncio.create_task(job.aresult()) for _ in range(40)]
        await asyncio.to_thread(entered.wait, 5)
        go_on.set()
        return sum(await asyncio.gather(*waiting))

    assert asyncio.run(main()) == 160


def test_a_timeout_and_an_error_in_an_event_loop(job: Job[int], store: Store) -> None:
    with pytest.raises(ResultTimeout, match="it is running"):
        asyncio.run(job.aresult(timeout=0.01))
    store.error = BrokerUnavailable("no answer")
    with pytest.raises(BrokerUnavailable):
        asyncio.run(job.aresult())


def test_a_handle_by_id(app: App, job: Job[int], store: Store) -> None:
    store.known[job.id] = JobState(job.id, "done", 1, result=pack_value(4))
    dashed = f"{job.id[:8]}-{job.id[8:12]}-{job.id[12:16]}-{job.id[16:20]}-{job.id[20:]}".upper()
    for id in (job.id, dashed):
        assert app.job(id).result() == 4
    assert app.job(job.id) == Job(job.id, job.id, "", "", False)
    assert app.job(job.id, app.tasks[job.task]).task == job.task
    for wrong in ("", "x" * 32, job.id[:-1], 5):
        with pytest.raises(ConfigError, match="is no job's id"):
            app.job(wrong)  # type: ignore[arg-type]


def test_a_handle_travels_by_pickle(app: App, job: Job[int], store: Store) -> None:
    store.known[job.id] = JobState(job.id, "done", 1, result=pack_value(4))
    for again in (pickle.loads(pickle.dumps(job)), copy.copy(job), copy.deepcopy(job)):
        assert again == job
        assert hash(again) == hash(job)
        assert again.result() == 4
    assert "App" not in repr(job)
    nobody = f"nobody {new_id()}"
    with pytest.raises(ConfigError, match=f"this process has no app named '{nobody}'"):
        Job(job.id, job.key, "q", "t", True, nobody).result()
    with pytest.raises(ConfigError, match="came without its app"):
        Job(job.id, job.key, "q", "t", True).state()


def test_an_older_jobs_key_gives_the_first_jobs_result(app: App, job: Job[int], store: Store) -> None:
    assert isinstance(app.broker, Broker)
    app.broker.existing["order:1"] = job.id
    store.known[job.id] = JobState(job.id, "done", 1, result=pack_value(4))
    second = app.tasks[job.task].options(key="order:1").delay(2)
    assert (second.created, second.id, second.result()) == (False, job.id, 4)


# -- several jobs ---------------------------------------------------------------------------------------------------


def many(app: App, store: Store, count: int) -> list[Job[int]]:
    @app.task
    def triple(n: int) -> int:
        return 3 * n

    jobs = [triple.delay(n) for n in range(count)]
    store.known.update((job.id, JobState(job.id, "ready")) for job in jobs)
    return jobs


def test_jobs_come_in_the_order_in_which_they_end(app: App, store: Store) -> None:
    jobs = many(app, store, 4)
    store.later = [
        JobState(jobs[2].id, "done"),
        JobState(jobs[0].id, "dead"),
        JobState(jobs[3].id, "unknown"),
        JobState(jobs[1].id, "cancelled"),
    ]
    assert list(as_completed(jobs)) == [jobs[2], jobs[0], jobs[3], jobs[1]]
    assert list(as_completed([])) == []


def test_the_same_job_twice_comes_twice(app: App, store: Store) -> None:
    (job,) = many(app, store, 1)
    store.known[job.id] = JobState(job.id, "done")
    assert list(as_completed(iter([job, app.job(job.id)]))) == [job, app.job(job.id)]


def test_jobs_that_have_not_ended_in_time_are_counted(app: App, store: Store) -> None:
    jobs = many(app, store, 3)
    store.known[jobs[0].id] = JobState(jobs[0].id, "done")
    ended = as_completed(jobs, timeout=0.05)
    assert next(ended) == jobs[0]
    with pytest.raises(ResultTimeout, match=rf"2 jobs, {jobs[1].id} the first, had not ended within 0\.05 s"):
        next(ended)


def test_jobs_of_two_apps_are_refused_at_once(app: App, store: Store) -> None:
    other = App("other", broker=Broker())
    with pytest.raises(ConfigError, match="jobs of one app"):
        as_completed([*many(app, store, 1), other.job("0" * 32)])
