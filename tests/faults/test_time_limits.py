"""Time limits: kept whatever the function does, counted as attempts, and no slot is lost by it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tenure import Job, JobCancelled, JobFailed
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.keeper import LISTEN_PERIOD
from tests.stage.apps import limits
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for
from tests.stage.sizes import sized

LIMIT = limits.LIMIT
REASON = f"timeout: it ran longer than its time limit of {LIMIT:g} s"
KIND = "tenure.errors.TimeLimitExceeded"


def _start(stage: Stage, *options: str) -> Worker:
    stage.start_server()
    stage.use(limits.app)
    return stage.start_worker("w", "--processes", "1", *options, app=limits.__name__)


def _is_dead_of_it(stage: Stage, job: Job[Any], attempts: int) -> None:
    """Hold the job's history against what a time limit is to leave of it: attempts, and no losses."""
    found = stage.job(job.id)
    assert (found["state"], found["attempts"], found["losses"]) == ("dead", attempts, 0)
    ends = [one["ended"] for one in found["handouts"] if one["ended"] != "left"]
    assert ends == ["retried"] * (attempts - 1) + ["dead"]
    assert found["reason"] == f"gave up after {attempts} attempts: {REASON}"
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=5)
    assert caught.value.kind == KIND


def _wait_dead(stage: Stage, count: int, seconds: float) -> None:
    wait_for(lambda: stage.totals()["dead"] >= count, seconds, f"{count} jobs are dead")


def test_each_attempt_ends_near_the_limit_and_the_task_may_clean_up(bare: Stage) -> None:
    worker = _start(bare, "--threads", "2")
    spins, awaits, cleans = limits.spins.delay(), limits.awaits.delay(), limits.cleans_up.delay()
    _wait_dead(bare, 2, 30)
    _is_dead_of_it(bare, spins, 3)
    _is_dead_of_it(bare, awaits, 2)
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


def test_those_that_no_exception_reaches_cost_their_processes_after_the_grace_time(bare: Stage) -> None:
    grace = 1.0
    _start(bare, "--processes", "4", "--threads", "1", "--async-slots", "1", "--grace", f"{grace:g}s")
    jobs: list[Job[Any]] = [task.delay() for task in (limits.sleeps, limits.reads, limits.hogs, limits.blocks)]
    _wait_dead(bare, len(jobs), 30)
    for job in jobs:
        _is_dead_of_it(bare, job, 2)
        first, *_, last = bare.executions(job.id)
        again = last.start - first.start
        assert first.pid != last.pid
        assert again > LIMIT + grace
        recovered("a function that cannot be ended runs again after limit and grace", again, LIMIT + grace + 1.5)
    bare.check(limits.app.counts)


def test_isolated_jobs_are_ended_with_their_processes_near_the_limit_and_alone(bare: Stage) -> None:
    _start(bare, "--processes", "2", "--isolate")
    stuck: list[Job[Any]] = [task.delay() for task in (limits.sleeps, limits.reads, limits.hogs, limits.blocks)]
    others = [limits.awaits.delay(), limits.cleans_up.delay()]
    quick = [limits.quick.delay(number) for number in range(10)]
    _wait_dead(bare, len(stuck) + 1, 40)
    assert others[1].result(timeout=10) == "attempt 2"
    assert [job.result(timeout=10) for job in quick] == list(range(10))
    for job in (*stuck, others[0]):
        _is_dead_of_it(bare, job, 2)
        for one in bare.job(job.id)["handouts"]:
            took = (one["end_at"] - one["begin_at"]) / 1000
            assert took >= LIMIT
            recovered("an isolated function that cannot be ended is ended", took, LIMIT + OVERRUN_AFTER)
    totals = bare.check(limits.app.counts)["totals"]
    assert (totals["handouts"]["lost"], totals["handouts"]["left"], totals["refused"]) == (0, 0, 0)
    _is_one_at_a_time(bare)


def _is_one_at_a_time(stage: Stage) -> None:
    """Hold the executions of each process against each other, whatever their jobs."""
    for pid in {one.pid for one in stage.executions()}:
        runs = [one for one in stage.executions() if one.pid == pid]
        assert all(earlier.last <= later.start for earlier, later in pairwise(runs))


def test_other_jobs_of_its_process_go_back_when_they_take_too_long(bare: Stage) -> None:
    _start(bare, "--threads", "3", "--grace", "1s")
    held = limits.holds.delay(1)
    stuck = limits.sleeps.options(max_attempts=1).delay()
    wait_for(lambda: len(bare.executions()) == 2, 10, "both have started")
    finishes = limits.holds.delay(2)
    wait_for(lambda: len(bare.executions()) == 3, 10, "all have started")
    _wait_dead(bare, 1, 30)
    for job in (held, finishes):
        assert job.result(timeout=10) in (1, 2)
        found = bare.job(job.id)
        assert ([one["ended"] for one in found["handouts"]], found["losses"]) == (["left", "done"], 0)
    assert bare.job(stuck.id)["attempts"] == 1
    bare.check(limits.app.counts)


def test_overruns_leave_all_slots_free_whatever_they_end_in(bare: Stage) -> None:
    count = sized(16, 50)
    worker = _start(bare, "--threads", "2")
    jobs = [limits.overruns.delay(number, 2.0) for number in range(count)]
    _wait_dead(bare, count, 40)
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
    _start(bare, "--threads", "1")
    endless = limits.spins.options(max_attempts=1, timeout=1).delay()
    quick = [limits.quick.delay(number) for number in range(100)]
    assert [job.result(timeout=20) for job in quick] == list(range(100))
    assert bare.job(endless.id)["reason"].endswith("timeout: it ran longer than its time limit of 1 s")
    bare.check(limits.app.counts)


def test_a_crash_is_no_matter_of_time_limits(bare: Stage) -> None:
    _start(bare, "--threads", "2")
    limits.sleeps.options(timeout=600).delay(0.0)
    job = limits.crashes.delay()
    assert job.result(timeout=20) == "finished"
    first, second = bare.executions(job.id)
    assert bare.job(job.id)["losses"] == 1
    recovered("a job whose process dies runs again", second.start - first.start, 1.5)
    bare.check(limits.app.counts)


def test_a_job_that_is_terminated_ends_where_it_runs_and_no_other_does(bare: Stage) -> None:
    _start(bare, "--threads", "3")
    jobs = [limits.spins.options(timeout=600).delay(), limits.awaits.options(timeout=600).delay()]
    other = limits.holds.delay(1)
    wait_for(lambda: len(bare.executions()) == 3, 10, "all have started")
    asked_at = time.time()
    for job in jobs:
        assert job.cancel(terminate=True) == "asked"
        with pytest.raises(JobCancelled):
            job.result(timeout=10)
        _was_terminated(bare, job, asked_at, LISTEN_PERIOD + OVERRUN_AFTER + 0.5)
    bare.let_go()
    assert other.result(timeout=10) == 1
    assert [one["ended"] for one in bare.job(other.id)["handouts"]] == ["done"]
    assert len({one.pid for one in bare.executions()}) == 1
    bare.check(limits.app.counts)


def test_one_that_no_exception_reaches_is_terminated_with_its_process(bare: Stage) -> None:
    _start(bare, "--isolate", "--processes", "2")
    stuck, other = limits.sleeps.options(timeout=600).delay(), limits.holds.delay(1)
    wait_for(lambda: len(bare.executions()) == 2, 10, "both have started")
    asked_at = time.time()
    assert stuck.cancel(terminate=True) == "asked"
    with pytest.raises(JobCancelled, match="terminated: somebody has cancelled it"):
        stuck.result(timeout=10)
    _was_terminated(bare, stuck, asked_at, LISTEN_PERIOD + OVERRUN_AFTER + 0.5)
    bare.let_go()
    assert other.result(timeout=10) == 1
    assert [one["ended"] for one in bare.job(other.id)["handouts"]] == ["done"]
    bare.check(limits.app.counts)


def _was_terminated(stage: Stage, job: Job[Any], asked_at: float, promised: float) -> None:
    found = stage.job(job.id)
    assert (found["state"], found["losses"]) == ("cancelled", 0)
    (handout,) = found["handouts"]
    assert handout["ended"] == "cancelled"
    recovered("a job that is terminated has ended", handout["end_at"] / 1000 - asked_at, promised)
