"""Connections that are cut, fall silent, or lose an answer between a client and the server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tenure import App, BrokerUnavailable, Task
from tenure.faults import Proxy
from tests.stage.apps import elsewhere, jobs
from tests.stage.harness import JOBS, Stage, wait_for
from tests.stage.scripts import VERBS, LosesAnswers


@pytest.fixture
def proxy(stage: Stage) -> Iterator[Proxy]:
    """A proxy before the stage's server, through which this process adds."""
    with Proxy(stage.url) as proxy:
        stage.use(jobs.app, proxy.url)
        yield proxy


def test_all_connections_are_cut_again_and_again(stage: Stage, proxy: Proxy) -> None:
    stage.start_worker("w", "--processes", "2", "--threads", "4", broker=proxy.url)
    count = 0
    for _ in range(8):
        for _ in range(25):
            jobs.work.delay(count, 0.01)
            count += 1
        assert proxy.cut() > 0
        wait_for(lambda count=count: stage.totals()["done"] >= count - 25, 5, "jobs flow again")  # type: ignore[misc]
    stage.wait_done(count)
    assert stage.check(jobs.app.counts)["totals"]["done"] == count


def test_new_connections_are_cut_ten_times(stage: Stage, proxy: Proxy) -> None:
    stage.start_worker("w", "--processes", "2", broker=proxy.url)
    jobs.work.delay(0)
    stage.wait_done(1)
    proxy.cut_on_accept(10)
    proxy.cut()
    for number in range(1, 20):
        jobs.work.delay(number)
    stage.wait_done(20, 6)
    stage.check(jobs.app.counts)


def test_open_connections_fall_silent_for_ever(stage: Stage, proxy: Proxy) -> None:
    stage.start_worker("w", "--processes", "2", "--threads", "4", broker=proxy.url)
    for number in range(20):
        jobs.work.delay(number, 0.05)
    running = jobs.work.delay(20, 1.0)
    wait_for(lambda: stage.executions(running.id), 10, "the long job has started")
    proxy.stall(None, new_connections=True)
    stalled_at = time.monotonic()
    job = jobs.work.delay(21)
    assert time.monotonic() - stalled_at < 3
    wait_for(lambda: stage.executions(job.id), 4 - (time.monotonic() - stalled_at), "the worker takes again")
    print(f"taken again after {time.monotonic() - stalled_at:.3f} s")
    stage.wait_done(22, 10)
    proxy.pass_through()  # what was held back arrives late
    assert stage.check(jobs.app.counts)["totals"]["handouts"]["returned"] == 0


def test_a_worker_that_is_cut_off_stops_before_another_begins(stage: Stage, proxy: Proxy) -> None:
    options = ("--processes", "1", "--visibility-timeout", "2s")
    away = stage.start_worker("away", *options, broker=proxy.url)
    added = [jobs.hold.delay(number) for number in range(4)]
    wait_for(lambda: len(stage.executions()) == 4, 10, "all jobs have started")
    stage.start_worker("other", *options)
    time.sleep(1.0)  # so that leases have been extended
    proxy.stall(None, new_connections=False)
    stage.wait_done(4, 10)
    proxy.pass_through()
    wait_for(lambda: stage.totals()["refused"] == 4, 5, "what the first worker still says is refused")
    for job in added:
        handouts = stage.job(job.id)["handouts"]
        assert [(one["worker"], one["ended"]) for one in handouts] == [("away", "returned"), ("other", "done")]
    stage.check(jobs.app.counts)
    assert away.counts["refused"] == 4


def test_answers_are_lost(stage: Stage) -> None:
    loses = LosesAnswers(3)
    with Proxy(stage.url, script=loses) as proxy:
        stage.use(jobs.app, proxy.url)
        stage.start_worker("w", "--processes", "1", "--threads", "2", "--visibility-timeout", "1s", broker=proxy.url)
        stage.use(elsewhere.app)
        elsewhere.something_else.delay()  # which this worker does not know
        added = [jobs.work.delay(number) for number in range(20)]
        added += [jobs.work.delay(number, 1.0) for number in range(3)]
        failing = [jobs.broken.delay("no") for _ in range(4)]
        assert all(job.created for job in added)
        stage.wait_done(len(added))
        wait_for(lambda: stage.totals()["dead"] == len(failing), 5, "the raising jobs are dead")
        wait_for(lambda: loses.lost[b"release"] >= 2, 5, "a release was answered")
        produced = jobs.app.counts
        record = stage.check(produced._replace(added=produced.added + 1))
    assert [verb for verb in VERBS if not loses.lost[verb]] == []
    print({verb.decode(): times for verb, times in loses.lost.items()})
    assert record["totals"]["handouts"]["retried"] == len(failing)
    assert len(stage.executions()) == len(added) + 2 * len(failing)


def _task(url: str) -> Task[[int], None]:
    """A task of an app that waits for half a second only, under the name that the worker knows."""

    app = App("impatient", broker=url, add_timeout=0.5)

    @app.task(name=f"{JOBS}.work")
    def work(number: int) -> None: ...

    return work


def _unavailable(task: Task[[int], None]) -> BrokerUnavailable:
    asked_at = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="not confirmed; safe to send again") as unavailable:
        task.delay(1)
    assert 0.4 < time.monotonic() - asked_at < 1.5
    return unavailable.value


def test_nothing_answers(stage: Stage, proxy: Proxy) -> None:
    task = _task(proxy.url)
    stage.use(task.app, proxy.url)
    proxy.stall(None, new_connections=False)
    error = _unavailable(task)
    assert task.app.counts == (0, 0, 1)
    with pytest.raises(BrokerUnavailable):
        error.resend()
    proxy.pass_through()
    job = error.resend()
    assert (job.id, job.created, task.app.counts) == (error.id, True, (1, 0, 0))
    stage.start_worker()
    stage.wait_done(1)
    stage.check(task.app.counts)


def test_nobody_listens(bare: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    task = _task(f"tenure://{address}")
    bare.use(task.app, f"tenure://{address}")
    error = _unavailable(task)
    bare.start_server(address)
    assert error.resend().created
    bare.start_worker()
    bare.wait_done(1)
    bare.check(task.app.counts)


def test_a_stored_job_that_was_not_confirmed_is_met_by_its_key(stage: Stage) -> None:
    task = _task(stage.url)
    loses = LosesAnswers(1000, b"add")
    with Proxy(stage.url, script=loses) as lossy:
        stage.use(task.app, lossy.url)
        error = _unavailable(task)
        loses.times = 0
        job = task.options(key=error.key).delay(1)
        assert (job.id, job.created) == (error.id, False)
        assert task.app.counts == (1, 1, 0)
    stage.start_worker()
    stage.wait_done(1)
    stage.check(task.app.counts)
