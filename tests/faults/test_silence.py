"""A server that is not there, does not answer, or stands still, and connections that fall silent."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tenure import App, BrokerUnavailable, Task, clock
from tenure.faults import Direction, Proxy, process
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import JOBS, Stage, wait_for
from tests.stage.producer import Producer
from tests.stage.scripts import LosesAnswers
from tests.stage.sizes import sized


@pytest.fixture
def proxy(stage: Stage) -> Iterator[Proxy]:
    """A proxy before the stage's server, through which this process adds."""
    with Proxy(stage.url) as proxy:
        stage.use(jobs.app, proxy.url)
        yield proxy


@pytest.mark.parametrize("way", [None, *Direction], ids=["both ways", "to the server", "to the client"])
def test_open_connections_fall_silent_for_ever(stage: Stage, proxy: Proxy, way: Direction | None) -> None:
    stage.start_worker("w", "--processes", "2", "--threads", "4", broker=proxy.url)
    for number in range(20):
        jobs.work.delay(number, 0.05)
    running = jobs.work.delay(20, 1.0)
    wait_for(lambda: stage.executions(running.id), 10, "the long job has started")
    proxy.stall(None, direction=way)
    stalled_at = time.monotonic()
    job = jobs.work.delay(21)
    recovered(".delay() returns although its connection fell silent", time.monotonic() - stalled_at, 2.0)
    wait_for(lambda: stage.executions(job.id), 10, "the worker takes again")
    recovered("a worker whose connections fell silent takes again", time.monotonic() - stalled_at, 2.0)
    stage.wait_done(22, 10)
    proxy.pass_through()  # what was held back arrives late
    totals = stage.check(jobs.app.counts)["totals"]
    assert totals["handed_out"] == len(stage.executions()) == 22


def test_the_server_stands_still(stage: Stage, proxy: Proxy) -> None:
    """For longer than the visibility timeout: no lease may end while nobody could have extended it."""
    options = ("--processes", "2", "--threads", "2", "--visibility-timeout", "2s")
    stage.start_worker("w", *options, broker=proxy.url)
    producer = Producer(0.02, 0.05)
    waiting = [jobs.work.delay(number, 0.05).id for number in range(100)]
    stage.wait_done(10)
    process.freeze(stage.server.pid)
    try:
        time.sleep(sized(3.0, 10.0))
    finally:
        process.thaw(stage.server.pid)
    thawed_at = clock.boot()
    wait_for(lambda: stage.executions()[-1].start > thawed_at, 10, "the worker goes on")
    goes_on_at = min(one.start for one in stage.executions() if one.start > thawed_at)
    recovered("jobs go on when the server no longer stands still", goes_on_at - thawed_at, 2.0)
    ids = waiting + producer.stop()
    stage.wait_done(len(ids))
    record = stage.check(jobs.app.counts)
    assert Counter(one.job for one in stage.executions()) == Counter(ids), "each job once"
    assert record["totals"]["handouts"]["returned"] == 0


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
    waited = time.monotonic() - asked_at
    assert waited > 0.4, "given up too early"
    recovered("BrokerUnavailable with an add_timeout of 0.5 s", waited, 0.5)
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
