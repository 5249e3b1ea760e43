"""Worker processes that are replaced by fresh ones: after so many jobs, or above so much memory."""

from __future__ import annotations

import re
import time
from collections import Counter

from tenure import clock
from tenure.faults import process
from tests.stage.apps import coroutines, growing, jobs
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for
from tests.stage.marks import Execution
from tests.stage.sizes import sized


def most_at_once(executions: list[Execution]) -> int:
    """Return how many executions ran at one time at most."""
    steps = sorted([(one.start, 1) for one in executions] + [(one.last, -1) for one in executions])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def replaced(worker: Worker) -> list[int]:
    """Return the processes that a worker has said it replaces."""
    return [int(pid) for pid in re.findall(r"process (\d+) is replaced", worker.output)]


def is_full(worker: Worker, count: int) -> bool:
    """Whether so many processes are there, and none that is to be replaced."""
    children = worker.children
    return len(children) == count and not set(children) & set(replaced(worker))


def test_processes_are_replaced_after_five_jobs(stage: Stage) -> None:
    count = sized(60, 1000)
    options = ("--processes", "1", "--threads", "2", "--max-jobs-per-process", "5")
    workers = [stage.start_worker(f"w{number}", *options) for number in range(3)]
    for number in range(count):
        jobs.work.delay(number, 0.01)
    stage.wait_done(count, sized(45, 600))
    by_process = Counter(one.pid for one in stage.executions())
    assert max(by_process.values()) <= 5
    assert len(by_process) >= count / 5
    for worker in workers:
        wait_for(lambda worker=worker: is_full(worker, 1), 10, "the process count is full again")  # type: ignore[misc]
        assert "ERROR" not in worker.output
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["handed_out"]) == (count, count)
    assert sum(worker.counts["started"] for worker in workers) == count


def test_the_next_process_uses_the_slots_that_a_long_job_leaves_free(stage: Stage) -> None:
    options = ("--processes", "1", "--threads", "3", "--max-jobs-per-process", "4", "--grace", "15s")
    worker = stage.start_worker("w", *options)
    held = jobs.hold.delay(0)
    wait_for(stage.executions, 10, "the long job has started")
    old = stage.executions()[0].pid
    short = [jobs.work.delay(number, 0.05) for number in range(10)]
    stage.wait_done(len(short))
    assert len({one.pid for one in stage.executions()}) >= 3, "the second one was replaced as well"
    assert most_at_once(stage.executions()) <= 3
    assert old in worker.children
    stage.let_go()
    wait_for(lambda: is_full(worker, 1), 10, "the processes that were replaced have left")
    assert [one["ended"] for one in stage.job(held.id)["handouts"]] == ["done"]
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["handed_out"]) == (11, 11)


def test_a_worker_leaves_while_one_of_its_processes_is_replaced(stage: Stage) -> None:
    options = ("--processes", "1", "--threads", "2", "--max-jobs-per-process", "1", "--grace", "1s")
    worker = stage.start_worker("w", *options)
    job = jobs.hold.delay(0)
    wait_for(lambda: len(worker.children) == 2, 10, "the next process is there already")
    assert worker.stop() == 0
    assert "Traceback" not in worker.output
    assert (stage.job(job.id)["state"], stage.job(job.id)["losses"]) == ("ready", 0)
    totals = stage.check(jobs.app.counts)["totals"]
    assert totals["handouts"]["left"] == 1


def test_coroutines_of_a_process_that_is_replaced_have_all_the_time_they_take(bare: Stage) -> None:
    bare.start_server()
    bare.use(coroutines.app)
    options = ("--processes", "1", "--threads", "1", "--max-jobs-per-process", "2", "--grace", "1s")
    worker = bare.start_worker("w", *options, app=coroutines.__name__)
    patient, endless = coroutines.fetch.delay(1, 3.0), coroutines.fetch.delay(2, 600.0)
    wait_for(lambda: len(worker.children) == 2, 10, "the next process is there already")
    assert patient.result(timeout=20) == 1
    told_at = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - told_at < 6, "now the grace time counts"
    found = bare.job(endless.id)
    assert (found["state"], [one["ended"] for one in found["handouts"]]) == ("ready", ["released"])
    bare.check(coroutines.app.counts)


def test_a_process_that_is_replaced_is_killed(stage: Stage) -> None:
    options = ("--processes", "1", "--threads", "1", "--max-jobs-per-process", "1")
    worker = stage.start_worker("w", *options)
    job = jobs.hold.delay(0)
    wait_for(lambda: len(worker.children) == 2, 10, "the next process is there already")
    wait_for(stage.executions, 10, "the job runs")
    process.kill(stage.executions()[0].pid)
    stage.wait_done(1)
    assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["lost", "done"]
    wait_for(lambda: is_full(worker, 1), 10, "the process count is full again")
    stage.check(jobs.app.counts)


def test_no_gap_is_noticed_while_processes_are_replaced(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--threads", "2", "--max-jobs-per-process", "80")
    added: dict[str, float] = {}
    for number in range(110):
        added[jobs.work.delay(number).id] = clock.boot()
        time.sleep(0.04)
    stage.wait_done(110)
    assert len({one.pid for one in stage.executions()}) == 2
    longest = max(one.start - added[one.job] for one in stage.executions())
    recovered("a job waits while the worker process is replaced", longest, 0.5)
    stage.check(jobs.app.counts)


def test_a_process_that_has_grown_is_replaced(bare: Stage) -> None:
    bare.start_server()
    bare.use(growing.app)
    worker = bare.start_worker(
        "w", "--processes", "1", "--threads", "1", "--max-memory-per-process", "120MiB", app=growing.__name__
    )
    for _ in range(9):
        growing.grow.delay(30)
    bare.wait_done(9, 30)
    by_process = Counter(one.pid for one in bare.executions())
    assert len(by_process) >= 3
    assert re.search(r"process \d+ is replaced: \d+MiB of memory, --max-memory-per-process 120MiB", worker.output)
    assert "when it starts" not in worker.output
    wait_for(lambda: is_full(worker, 1), 10, "the process count is full again")
    totals = bare.check(growing.app.counts)["totals"]
    assert (totals["done"], totals["handed_out"]) == (9, 9)


def test_a_limit_below_what_the_app_needs_is_said_and_jobs_still_run(bare: Stage) -> None:
    bare.start_server()
    bare.use(growing.app)
    worker = bare.start_worker(
        "w", "--processes", "1", "--threads", "1", "--max-memory-per-process", "1MiB", app=growing.__name__
    )
    for _ in range(2):
        growing.grow.delay(1)
    bare.wait_done(2, 30)
    assert "when it starts, too much for --max-memory-per-process 1.0MiB" in worker.output
    bare.check(growing.app.counts)
