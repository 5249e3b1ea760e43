"""A job that must start by a certain time, and a worker that stands still between taking it and starting it."""

from __future__ import annotations

import time

import pytest

from tenure import Job, JobFailed
from tenure.faults import process
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for


def test_a_process_that_stood_still_starts_nothing_too_late(stage: Stage) -> None:
    """It was given the job in time, and its lease is good; the server is the one to say that the job has expired.

    The supervisor stands still too: else it would give back what its process has not read.
    """
    worker = stage.start_worker("w", "--processes", "1")
    (child,) = worker.children
    jobs.work.delay(0).result(timeout=20)
    process.freeze(worker.pid)
    process.freeze(child)
    late, in_time = jobs.app.add_many([jobs.work.options(expires=0.5).s(1), jobs.work.options(expires=30).s(2)])
    assert isinstance(late, Job)
    assert isinstance(in_time, Job)
    wait_for(lambda: stage.totals()["running"] == 2, 5, "the take that was parked is given both")
    time.sleep(0.7)
    process.thaw(child)
    with pytest.raises(JobFailed, match="expired"):
        late.result(timeout=20)
    assert in_time.result(timeout=20) == 2
    process.thaw(worker.pid)
    assert late.id not in {one.job for one in stage.executions()}
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["expired"], totals["handouts"]["released"]) == (2, 1, 1)
