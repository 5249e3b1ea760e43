"""Time limits of functions that no exception reaches: their processes are ended, and every account holds."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from tenure import Job, JobCancelled
from tenure.faults import Proxy
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.keeper import LISTEN_PERIOD
from tenure.worker.overruns import LOOK_PERIOD
from tests.stage.apps import limits
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.scripts import LosesAnswers
from tests.stage.sizes import sized
from tests.stage.timed import LIMIT, is_dead_of_it, start, wait_dead, was_terminated


def test_those_that_no_exception_reaches_cost_their_processes_after_the_grace_time(bare: Stage) -> None:
    grace = 1.0
    start(bare, "--processes", "4", "--threads", "1", "--async-slots", "1", "--grace", f"{grace:g}s")
    jobs: list[Job[Any]] = [task.delay() for task in (limits.sleeps, limits.reads, limits.hogs, limits.blocks)]
    wait_dead(bare, len(jobs), 30)
    for job in jobs:
        is_dead_of_it(bare, job, 2)
        first, *_, last = bare.executions(job.id)
        assert first.pid != last.pid
        _is_ended_within(bare, job, LIMIT + grace + LOOK_PERIOD)
    bare.check(limits.app.counts)


def test_isolated_jobs_are_ended_with_their_processes_near_the_limit_and_alone(bare: Stage) -> None:
    start(bare, "--processes", "2", "--isolate")
    stuck: list[Job[Any]] = [task.delay() for task in (limits.sleeps, limits.reads, limits.hogs, limits.blocks)]
    others = [limits.awaits.delay(), limits.cleans_up.delay()]
    quick = [limits.quick.delay(number) for number in range(10)]
    wait_dead(bare, len(stuck) + 1, 40)
    assert others[1].result(timeout=10) == "attempt 2"
    assert [job.result(timeout=10) for job in quick] == list(range(10))
    for job in (*stuck, others[0]):
        is_dead_of_it(bare, job, 2)
        _is_ended_within(bare, job, LIMIT + OVERRUN_AFTER)
    totals = bare.check(limits.app.counts)["totals"]
    assert (totals["handouts"]["lost"], totals["handouts"]["left"], totals["refused"]) == (0, 0, 0)
    _is_one_at_a_time(bare)


def _is_ended_within(stage: Stage, job: Job[Any], seconds: float) -> None:
    """Hold how long the attempts took against what is promised; where it had to leave with another job, it had none."""
    for one in stage.job(job.id)["handouts"]:
        took = (one["end_at"] - one["begin_at"]) / 1000
        if one["ended"] != "left":
            assert took >= LIMIT
            recovered(f"a function that no exception reaches is ended ({seconds:g} s)", took, seconds)


def _is_one_at_a_time(stage: Stage) -> None:
    """Hold the executions of each process against each other, whatever their jobs."""
    for pid in {one.pid for one in stage.executions()}:
        runs = [one for one in stage.executions() if one.pid == pid]
        assert all(earlier.last <= later.start for earlier, later in pairwise(runs))


def test_other_jobs_of_its_process_finish_first_while_the_next_one_works(bare: Stage) -> None:
    worker = start(bare, "--threads", "2", "--grace", "3s")
    other = limits.holds.delay(1)
    stuck = limits.sleeps.options(max_attempts=1).delay()
    wait_for(lambda: len(bare.executions()) == 2, 10, "both have started")
    (worn,) = worker.children
    wait_for(lambda: f"process {worn} is replaced: a job goes on" in worker.output, 15, "its process is replaced")

    def followed() -> bool:
        limits.quick.delay(2).result(timeout=10)
        return any(one.pid != worn for one in bare.executions())

    wait_for(followed, 20, "the next process has run a job")
    assert worn in worker.children, "its other job still runs"
    bare.let_go()
    assert other.result(timeout=10) == 1
    wait_dead(bare, 1, 10)
    ends = [[one["ended"] for one in bare.job(job.id)["handouts"]] for job in (other, stuck)]
    assert ends == [["done"], ["dead"]]
    totals = bare.check(limits.app.counts)["totals"]
    assert (totals["handouts"]["left"], totals["handouts"]["lost"]) == (0, 0)


def test_other_jobs_of_its_process_go_back_when_they_take_too_long(bare: Stage) -> None:
    start(bare, "--threads", "3", "--grace", "1s")
    held = limits.holds.delay(1)
    stuck = limits.sleeps.options(max_attempts=1).delay()
    wait_for(lambda: len(bare.executions()) == 2, 10, "both have started")
    finishes = limits.holds.delay(2)
    wait_for(lambda: len(bare.executions()) == 3, 10, "all have started")
    wait_dead(bare, 1, 30)
    for job in (held, finishes):
        assert job.result(timeout=10) in (1, 2)
        found = bare.job(job.id)
        assert ([one["ended"] for one in found["handouts"]], found["losses"]) == (["left", "done"], 0)
    assert bare.job(stuck.id)["attempts"] == 1
    bare.check(limits.app.counts)


def test_one_that_no_exception_reaches_is_terminated_with_its_process(bare: Stage) -> None:
    start(bare, "--isolate", "--processes", "2")
    stuck, other = limits.sleeps.options(timeout=600).delay(), limits.holds.delay(1)
    wait_for(lambda: len(bare.executions()) == 2, 10, "both have started")
    asked_at = time.time()
    assert stuck.cancel(terminate=True) == "asked"
    with pytest.raises(JobCancelled, match="terminated: somebody has cancelled it"):
        stuck.result(timeout=10)
    was_terminated(bare, stuck, asked_at, LISTEN_PERIOD + OVERRUN_AFTER + 0.5)
    bare.let_go()
    assert other.result(timeout=10) == 1
    assert [one["ended"] for one in bare.job(other.id)["handouts"]] == ["done"]
    bare.check(limits.app.counts)


def test_a_crash_is_no_matter_of_time_limits(bare: Stage) -> None:
    start(bare, "--threads", "2")
    limits.sleeps.options(timeout=600).delay(0.0)
    job = limits.crashes.delay()
    assert job.result(timeout=20) == "finished"
    first, second = bare.executions(job.id)
    assert bare.job(job.id)["losses"] == 1
    recovered("a job whose process dies runs again", second.start - first.start, 1.5)
    bare.check(limits.app.counts)


def test_the_word_for_an_ended_process_is_counted_once_whatever_happens_to_its_answers(bare: Stage) -> None:
    bare.start_server()
    bare.use(limits.app)
    loses = LosesAnswers(4, b"retry", b"dead", b"bye")
    with Proxy(bare.url, script=loses) as proxy:
        bare.start_worker("w", "--isolate", "--processes", "1", app=limits.__name__, broker=proxy.url)
        job = limits.sleeps.options(max_attempts=3).delay()
        wait_for(bare.executions, 10, "it has started")
        proxy.stall(sized(1.5, 3.0))  # over the moment when the process is ended
        wait_dead(bare, 1, 40)
        is_dead_of_it(bare, job, 3)
        bare.check(limits.app.counts)
    assert (loses.lost[b"retry"], loses.lost[b"bye"]) == (4, 4)
    assert loses.lost[b"dead"] > 0
