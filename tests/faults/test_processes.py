"""Processes that are killed: worker processes, whole workers, and jobs that kill their own process."""

from __future__ import annotations

import signal
import time

import pytest

from tenure.faults import Proxy, process
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for
from tests.stage.marks import Execution
from tests.stage.scripts import LosesAnswers


def _ran_again(stage: Stage, lost: list[Execution]) -> bool:
    return {one.job for one in stage.executions() if one.fence > 1} >= {one.job for one in lost}


def test_a_worker_process_is_killed(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "2", "--threads", "4")
    added = [jobs.hold.delay(number) for number in range(6)]
    wait_for(lambda: len(stage.executions()) == 6, 10, "all jobs have started")
    victim = stage.executions()[0].pid
    lost = [one for one in stage.executions() if one.pid == victim]
    process.kill(victim)
    killed_at = time.monotonic()
    wait_for(lambda: _ran_again(stage, lost), 3, "the lost jobs run again")
    print(f"ran again after {time.monotonic() - killed_at:.3f} s")
    wait_for(lambda: len(worker.children) == 2 and victim not in worker.children, 5, "a new process is there")
    stage.let_go()
    stage.wait_done(6)
    for job in added:
        handouts = stage.job(job.id)["handouts"]
        assert handouts[-1]["ended"] == "done"
        was_lost = job.id in {one.job for one in lost}
        assert [(one["ended"], one["cause"]) for one in handouts[:-1]] == [("lost", "SIGKILL")] * was_lost
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["handouts"]["lost"]) == (6, len(lost))


def test_a_process_is_killed_before_it_reads_the_answer_to_its_done(stage: Stage) -> None:
    loses = LosesAnswers(1_000_000, b"done")
    with Proxy(stage.url, script=loses) as proxy:
        worker = stage.start_worker("w", "--processes", "1", broker=proxy.url)
        jobs.work.delay(1)
        wait_for(lambda: loses.lost[b"done"] > 2, 10, "the done is sent again and again")
        assert stage.totals()["done"] == 1
        process.kill(worker.children[0])
        wait_for(lambda: "ended (SIGKILL)" in worker.output, 5, "the supervisor knows")
        loses.times = 0
        totals = stage.check(jobs.app.counts)["totals"]
    assert worker.counts["done"] == 1, "told by the answer to the bye"
    assert (totals["handed_out"], totals["handouts"]["lost"]) == (1, 0)


@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "its supervisor only"])
def test_a_whole_worker_is_killed(stage: Stage, whole: bool) -> None:
    options = ("--processes", "2", "--threads", "4", "--visibility-timeout", "2s")
    first = stage.start_worker("first", *options)
    added = [jobs.hold.delay(number) for number in range(4)]
    wait_for(lambda: len(stage.executions()) == 4, 10, "all jobs have started")
    stage.start_worker("second", *options)
    lost = stage.executions()
    children = first.children
    if whole:
        first.signal_group(signal.SIGKILL)
    else:
        process.kill(first.pid)
    killed_at = time.monotonic()
    first.wait()
    wait_for(lambda: all(process.state(pid) in (None, "Z") for pid in children), 2, "the processes die with it")
    wait_for(lambda: _ran_again(stage, lost), 9, "the lost jobs run again")
    print(f"ran again after {time.monotonic() - killed_at:.3f} s")
    stage.wait_done(4)
    for job in added:
        assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["returned", "done"]
    assert stage.check(jobs.app.counts, killed=(first,))["totals"]["handouts"]["returned"] == 4


def test_a_job_that_kills_its_worker(stage: Stage) -> None:
    poison = jobs.poison.delay()
    for number in range(50):
        jobs.work.delay(number)
    stage.start_worker("w", "--processes", "1", "--threads", "2")
    wait_for(lambda: stage.job(poison.id)["state"] == "dead", 20, "the poison job is dead")
    stage.wait_done(50)
    found = stage.job(poison.id)
    assert found["reason"] == "worker lost (SIGKILL)"
    assert [(one["ended"], one["cause"]) for one in found["handouts"]] == [("lost", "SIGKILL")] * 3
    assert (found["attempts"], found["losses"]) == (0, 3)
    assert "worker lost (SIGKILL)" in stage.run("dead", "ls", "--broker", stage.url).stdout
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["dead"]) == (50, 1)


def test_a_frozen_worker_process_loses_its_jobs(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "2", "--threads", "1", "--visibility-timeout", "1s")
    job = jobs.hold.delay(1)
    frozen = wait_for(stage.executions, 10, "the job has started")[0]
    process.freeze(frozen.pid)
    try:
        wait_for(lambda: _ran_again(stage, [frozen]), 9, "the job runs in the other process")
        stage.wait_done(1)
    finally:
        process.thaw(frozen.pid)
    stage.let_go()
    wait_for(lambda: stage.executions()[0].ended, 5, "the thawed execution has ended")
    wait_for(lambda: stage.totals()["refused"] == 1, 5, "its late settlement is refused")
    assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["returned", "done"]
    worker.signal(signal.SIGUSR1)
    wait_for(worker.counts_file.exists, 5, "the counts are written on SIGUSR1")
    assert worker.counts["refused"] == 1
    # A process that stands still cannot look at its deadline; that is what `current_job.fence` is for.
    stage.check(jobs.app.counts, frozen=frozen.pid)
