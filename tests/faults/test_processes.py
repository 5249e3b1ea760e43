"""Processes that are killed or go wrong: worker processes, whole workers, and jobs that kill their own process."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tenure import Job
from tenure.faults import Proxy, process
from tests.stage.apps import awkward, jobs
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.marks import Execution
from tests.stage.producer import Producer
from tests.stage.scripts import LosesAnswers
from tests.stage.sizes import sized


def _ran_again(stage: Stage, lost: list[Execution]) -> bool:
    return {one.job for one in stage.executions() if one.fence > 1} >= {one.job for one in lost}


def _ends(stage: Stage, job: Job[Any]) -> list[tuple[str, str]]:
    return [(one["ended"], one["cause"]) for one in stage.job(job.id)["handouts"]]


def test_a_worker_process_is_killed(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "2", "--threads", "4")
    added = [jobs.hold.delay(number) for number in range(6)]
    wait_for(lambda: len(stage.executions()) == 6, 10, "all jobs have started")
    victim = stage.executions()[0].pid
    lost = [one for one in stage.executions() if one.pid == victim]
    process.kill(victim)
    killed_at = time.monotonic()
    wait_for(lambda: _ran_again(stage, lost), 5, "the lost jobs run again")
    recovered("jobs of a killed process run again", time.monotonic() - killed_at, 1.0)
    wait_for(lambda: len(worker.children) == 2 and victim not in worker.children, 5, "a new process is there")
    recovered("a killed process is replaced", time.monotonic() - killed_at, 2.0)
    stage.let_go()
    stage.wait_done(6)
    for job in added:
        was_lost = job.id in {one.job for one in lost}
        assert _ends(stage, job)[:-1] == [("lost", "SIGKILL")] * was_lost
        assert _ends(stage, job)[-1][0] == "done"
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["handouts"]["lost"]) == (6, len(lost))


def test_a_job_kills_its_process_and_is_done_by_the_next_one(bare: Stage) -> None:
    bare.start_server()
    bare.use(awkward.app)
    worker = bare.start_worker("w", "--processes", "2", "--threads", "2", app=awkward.__name__)
    job = awkward.die_once.delay(1)
    assert job.result(timeout=10) == 1
    assert _ends(bare, job) == [("lost", "SIGKILL"), ("done", "")]
    wait_for(lambda: len(worker.children) == 2, 5, "the process count is full again")
    for child in worker.children:
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        assert "tenure.worker.child" in words, "a fresh interpreter, and no copy of one that has threads"
    totals = bare.check(awkward.app.counts)["totals"]
    assert (totals["handed_out"], totals["handouts"]["lost"], totals["handouts"]["done"]) == (2, 1, 1)


def test_a_process_is_killed_before_it_reads_the_answer_to_its_done(stage: Stage) -> None:
    loses = LosesAnswers(1_000_000, b"done")
    with Proxy(stage.url, script=loses) as proxy:
        worker = stage.start_worker("w", "--processes", "1", broker=proxy.url)
        jobs.work.delay(1)
        wait_for(lambda: loses.lost[b"done"] > 2, 10, "the done is sent again and again")
        assert stage.totals()["done"] == 1
        process.kill(worker.children[0])
        wait_for(lambda: "ended (SIGKILL)" in worker.output, 10, "the supervisor knows")
        loses.times = 0
        totals = stage.check(jobs.app.counts)["totals"]
    assert worker.counts["done"] == 1, "told by the answer to the bye"
    assert (totals["handed_out"], totals["handouts"]["lost"]) == (1, 0)


@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "its supervisor only"])
def test_a_whole_worker_is_killed(stage: Stage, whole: bool) -> None:
    options = ("--processes", "2", "--threads", "4", "--visibility-timeout", "2s")
    first = stage.start_worker("first", *options)
    added = [jobs.hold.delay(number) for number in range(8)]
    wait_for(lambda: len(stage.executions()) == 8, 10, "all jobs have started")
    waiting = [jobs.work.delay(number) for number in range(4)]
    stage.start_worker("second", *options)
    lost = stage.executions()[:8]
    children = first.children
    if whole:
        process.kill_tree(first.pid)
    else:
        process.kill(first.pid)
    killed_at = time.monotonic()
    first.wait()
    wait_for(lambda: all(process.state(pid) in (None, "Z") for pid in children), 5, "the processes die with it")
    stage.wait_done(len(waiting))
    wait_for(lambda: _ran_again(stage, lost), 9, "the lost jobs run again")
    recovered("jobs of a killed worker run again (visibility timeout 2 s)", time.monotonic() - killed_at, 3.0)
    stage.wait_done(12)
    for job in added:
        assert [how for how, _ in _ends(stage, job)] == ["returned", "done"]
    assert stage.check(jobs.app.counts, killed=(first,))["totals"]["handouts"]["returned"] == 8


def test_a_worker_is_killed_and_started_again_under_its_name(stage: Stage) -> None:
    # In a soak with default settings, so that nothing of it hangs on an option.
    limit, options = sized((2.0, ("--visibility-timeout", "2s")), (30.0, ()))
    first = stage.start_worker("pod-0", "--processes", "1", "--threads", "2", *options)
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    process.kill_tree(first.pid)
    killed_at = time.monotonic()
    first.wait()
    stage.start_worker("pod-0", "--processes", "1", "--threads", "2", *options)
    producer = Producer(0.05, 0.1)
    try:
        wait_for(lambda: len(stage.executions(job.id)) == 2, 4 * limit, "the job runs again")
        again = time.monotonic() - killed_at
        recovered(f"a job of a killed namesake runs again (visibility timeout {limit:g} s)", again, limit + 1.0)
    finally:
        others = producer.stop()
    stage.wait_done(1 + len(others))
    assert len(others) > 10, "the second one was kept busy"
    found = stage.job(job.id)["handouts"]
    assert [(one["worker"], one["ended"]) for one in found] == [("pod-0", "returned"), ("pod-0", "done")]
    stage.check(jobs.app.counts, killed=(first,))


def test_the_whole_tree_and_the_server_are_killed(stage: Stage) -> None:
    address = stage.url.removeprefix("tenure://")
    options = ("--processes", "1", "--threads", "2", "--visibility-timeout", "1s")
    first = stage.start_worker("first", *options)
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    stage.start_worker("second", *options)
    process.kill_tree(first.pid)
    process.kill(stage.server.pid)
    first.wait()
    stage.server.wait()
    stage.start_server(address)  # it has never heard of that worker, but the job's row tells of its lease
    started_at = time.monotonic()
    wait_for(lambda: len(stage.executions()) == 2, 6, "the job runs again")
    again = time.monotonic() - started_at
    recovered("jobs of a killed worker run again after a restart (visibility timeout 1 s)", again, 2.0)
    stage.wait_done(1)
    assert [how for how, _ in _ends(stage, job)] == ["returned", "done"]
    stage.check(jobs.app.counts, killed=(first,))


def test_a_strange_error_in_the_fetch_loop_stops_nothing(bare: Stage) -> None:
    bare.start_server()
    bare.use(awkward.app)
    bare.env["BREAK_ONCE"] = "1"
    worker = bare.start_worker("w", "--processes", "1", "--threads", "2", app=awkward.__name__)
    child = worker.children
    wait_for(lambda: "out of nowhere" in worker.output, 10, "the error is logged")
    for number in range(20):
        awkward.work.delay(number)
    bare.wait_done(20)
    assert worker.children == child, "the loop went on, in the same process"
    bare.check(awkward.app.counts)


def test_jobs_may_start_processes_of_their_own(bare: Stage) -> None:
    bare.start_server()
    bare.use(awkward.app)
    count = sized(4, 100)
    args = ("--processes", "1", "--threads", "2", "--max-jobs-per-process", str(count // 2))
    worker = bare.start_worker("w", *args, app=awkward.__name__)
    for _ in range(count):
        awkward.breed.delay(4)
    bare.wait_done(count, sized(50, 600))
    assert len({one.pid for one in bare.executions()}) >= 2, "a process was replaced meanwhile"
    brood = {int(line) for line in (bare.place / "brood").read_text().split()}
    assert len(brood) >= 2 * count
    wait_for(lambda: all(process.state(pid) is None for pid in brood), 5, "none of them is left, not even defunct")
    defunct = [pid for child in worker.children for pid in process.children(child) if process.state(pid) == "Z"]
    assert defunct == []
    totals = bare.check(awkward.app.counts)["totals"]
    # A process that is replaced may be given a job while it ends its take: that one goes back unread.
    assert (totals["done"], totals["handed_out"] - totals["handouts"]["left"]) == (count, count)


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
    wait_for(lambda: stage.totals()["refused"] == 1, 5, "its late settlement is refused")
    assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["returned", "done"]
    worker.signal(signal.SIGUSR1)
    wait_for(worker.counts_file.exists, 5, "the counts are written on SIGUSR1")
    assert worker.counts["refused"] == 1
    # A process that stands still cannot look at its deadline; that is what `current_job.fence` is for.
    stage.check(jobs.app.counts, frozen=frozen.pid)
