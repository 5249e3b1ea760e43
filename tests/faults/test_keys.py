"""Idempotency keys when workers and servers die: never a job that is dropped without a word."""

from __future__ import annotations

import pytest

from tenure import KeyConflict
from tenure.faults import process
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized

NO_WINDOW = ("--key-window", "0s")


@pytest.fixture
def stage(bare: Stage) -> Stage:
    bare.start_server("127.0.0.1:0", *NO_WINDOW)
    bare.use(jobs.app)
    return bare


def test_a_key_meets_its_job_after_a_crash_of_everything_and_is_free_when_that_has_ended(stage: Stage) -> None:
    options = "--processes", "1", "--visibility-timeout", "1s"
    first = stage.start_worker("first", *options)
    job = jobs.hold.options(key="k").delay(1)
    wait_for(stage.executions, 10, "the job has started")
    process.kill_tree(first.pid)
    process.kill(stage.server.pid)
    first.wait()
    stage.server.wait()
    stage.start_server(stage.url.removeprefix("tenure://"), *NO_WINDOW)
    again = jobs.hold.options(key="k").delay(1)
    assert (again.created, again.id) == (False, job.id)
    stage.start_worker("second", *options)
    assert again.result(timeout=20) == 1  # the first one's, which is kept longer than the key is held
    stage.let_go()
    later = jobs.hold.options(key="k").delay(1)
    assert later.created
    assert later.result(timeout=20) == 1
    assert [one.job for one in stage.executions()] == [job.id, job.id, later.id]
    stage.check(jobs.app.counts, killed=(first,))


def test_a_key_is_free_whenever_its_job_has_ended_well_or_not(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1")
    rounds = sized(20, 100)
    for number in range(rounds):
        job = jobs.work.options(key="k").delay(number)
        assert job.created
        assert job.result(timeout=20) == number
    assert jobs.broken.options(key="k", max_attempts=1).delay("no").wait(timeout=20) == "dead"
    assert jobs.broken.options(key="k", max_attempts=1).delay("no").created
    stage.wait_done(rounds)
    wait_for(lambda: stage.totals()["dead"] == 2, 10, "both have failed")
    stage.check(jobs.app.counts)


def test_a_caller_is_told_that_there_is_such_a_job_and_that_it_is_another_call(stage: Stage) -> None:
    first = jobs.work.options(key="k").delay(1)
    same = jobs.work.options(key="k").delay(1)
    assert (first.created, same.created, same.id) == (True, False, first.id)
    with pytest.raises(KeyConflict) as conflict:
        jobs.work.options(key="k").delay(2)
    assert conflict.value.first_id == first.id
    stage.check(jobs.app.counts)
