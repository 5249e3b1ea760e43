"""What the tests of time limits share: how a worker is started, and what a limit leaves of a job."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Job, JobFailed
from tests.stage.apps import limits
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for

LIMIT = limits.LIMIT
REASON = f"timeout: it ran longer than its time limit of {LIMIT:g} s"
KIND = "tenure.errors.TimeLimitExceeded"


def start(stage: Stage, *options: str) -> Worker:
    """Start a server and a worker with one process."""
    stage.start_server()
    stage.use(limits.app)
    return stage.start_worker("w", "--processes", "1", *options, app=limits.__name__)


def is_dead_of_it(stage: Stage, job: Job[Any], attempts: int) -> None:
    """Hold the job's history against what a time limit is to leave of it: attempts, and no losses."""
    found = stage.job(job.id)
    assert (found["state"], found["attempts"], found["losses"]) == ("dead", attempts, 0)
    ends = [one["ended"] for one in found["handouts"] if one["ended"] != "left"]
    assert ends == ["retried"] * (attempts - 1) + ["dead"]
    assert [one["cause"] for one in found["handouts"] if one["ended"] == "retried"] == [REASON] * (attempts - 1)
    assert {one["error"]["kind"] for one in found["handouts"] if one["ended"] != "left"} == {KIND}
    assert found["reason"] == f"gave up after {attempts} attempts: {REASON}"
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=5)
    assert caught.value.kind == KIND


def wait_dead(stage: Stage, count: int, seconds: float) -> None:
    """Wait until so many jobs are dead."""
    wait_for(lambda: stage.totals()["dead"] >= count, seconds, f"{count} jobs are dead")


def was_terminated(stage: Stage, job: Job[Any], asked_at: float, promised: float) -> None:
    """Hold a terminated job's history against what is to be left of it, and its end against the time promised."""
    found = stage.job(job.id)
    assert (found["state"], found["losses"]) == ("cancelled", 0)
    (handout,) = found["handouts"]
    assert handout["ended"] == "cancelled"
    recovered("a job that is terminated has ended", handout["end_at"] / 1000 - asked_at, promised)
