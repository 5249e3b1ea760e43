"""Time limits that Python code keeps: counted as attempts, and no slot is lost by them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tenure import Job, JobCancelled
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.keeper import LISTEN_PERIOD
from tests.stage.apps import limits
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized
from tests.stage.timed import LIMIT, is_dead_of_it, start, wait_dead, was_terminated


def test_each_attempt_ends_near_the_limit_and_the_task_may_clean_up(bare: Stage) -> None:
    worker = start(bare, "--threads", "2")
    spins, awaits, cleans = limits.spins.delay(), limits.awaits.delay(), limits.cleans_up.delay()
    wait_dead(bare, 2, 30)
    is_dead_of_it(bare, spins, 3)
    is_dead_of_it(bare, awaits, 2)
    assert cleans.result(timeout=10) == "attempt 2"
    assert (bare.place / "cleaned").exists()
    totals = bare.check(limits.app.counts)["totals"]
    assert (totals["handouts"]["retried"], totals["handouts"]["lost"]) == (4, 0)
    for job in (spins, awaits):
        for one in bare.executions(job.id):
            assert one.ended
            recovered("a function is ended after its time limit", one.last - one.start, LIMIT)
    assert len({one.pid for one in bare.executions()}) == 1, "the process goes on"
    assert "replaced" not in worker.output


def test_overruns_leave_all_slots_free_whatever_they_end_in(bare: Stage) -> None:
    count = sized(16, 50)
    worker = start(bare, "--threads", "2")
    jobs = [limits.overruns.delay(number, 2.0) for number in range(count)]
    wait_dead(bare, count, 40)
    assert "goes on after it was ended" in worker.output
    held = [limits.holds.delay(number) for number in range(2)]
    wait_for(lambda: _running(bare, held) == 2, 10, "both slots are free")
    bare.let_go()
    bare.wait_done(2)
    for job in jobs:
        found = bare.job(job.id)
        assert (found["state"], found["attempts"], found["losses"]) == ("dead", 1, 0)
        assert "timeout: it ran longer than its time limit of 0.1 s" in found["reason"]
    bare.check(limits.app.counts)
    starts = sorted(one.start for one in bare.executions() if one.job in {job.id for job in jobs})
    print(f"{count} overruns of 2 s in two slots were started within {starts[-1] - starts[0]:.1f} s")
    assert starts[-1] - starts[0] < count / 2 * (0.1 + OVERRUN_AFTER) * 2


def _running(stage: Stage, jobs: Sequence[Job[Any]]) -> int:
    return sum(not one.ended for job in jobs for one in stage.executions(job.id))


def test_a_job_without_an_end_stops_none_of_those_behind_it(bare: Stage) -> None:
    start(bare, "--threads", "1")
    endless = limits.spins.options(max_attempts=1, timeout=1).delay()
    quick = [limits.quick.delay(number) for number in range(100)]
    assert [job.result(timeout=20) for job in quick] == list(range(100))
    assert bare.job(endless.id)["reason"].endswith("timeout: it ran longer than its time limit of 1 s")
    bare.check(limits.app.counts)


def test_a_job_that_is_terminated_ends_where_it_runs_and_no_other_does(bare: Stage) -> None:
    start(bare, "--threads", "3")
    jobs = [limits.spins.options(timeout=600).delay(), limits.awaits.options(timeout=600).delay()]
    other = limits.holds.delay(1)
    wait_for(lambda: len(bare.executions()) == 3, 10, "all have started")
    asked_at = time.time()
    for job in jobs:
        assert job.cancel(terminate=True) == "asked"
        with pytest.raises(JobCancelled):
            job.result(timeout=10)
        was_terminated(bare, job, asked_at, LISTEN_PERIOD + OVERRUN_AFTER + 0.5)
    bare.let_go()
    assert other.result(timeout=10) == 1
    assert [one["ended"] for one in bare.job(other.id)["handouts"]] == ["done"]
    assert len({one.pid for one in bare.executions()}) == 1
    bare.check(limits.app.counts)
