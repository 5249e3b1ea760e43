"""How workers and servers end: what runs is finished or given back, and nothing is printed that frightens."""

from __future__ import annotations

import signal
import time

from tenure.faults import process
from tests.stage.apps import jobs
from tests.stage.harness import Stage, Worker, wait_for

SMALL = ("--processes", "2", "--threads", "2")


def _calm(worker: Worker) -> bool:
    return "Traceback" not in worker.output and "Error" not in worker.output and "Exception" not in worker.output


def test_a_worker_finishes_what_runs(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "15s")
    running = [jobs.work.delay(number, 1.5) for number in range(4)]
    wait_for(lambda: len(stage.executions()) == 4, 10, "all jobs have started")
    waiting = jobs.work.delay(4)
    assert worker.stop() == 0
    assert _calm(worker)
    assert all(one.ended for one in stage.executions())
    for job in running:
        assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["done"]
    assert (stage.job(waiting.id)["state"], stage.job(waiting.id)["handouts"]) == ("ready", [])
    assert worker.output.splitlines()[-1].startswith("counts: done=4 ")
    stage.check(jobs.app.counts)


def test_a_worker_gives_back_what_does_not_finish(stage: Stage) -> None:
    first = stage.start_worker("first", *SMALL, "--grace", "0.5s")
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    stage.start_worker("second", *SMALL)
    begun = time.monotonic()
    assert first.stop() == 0
    wait_for(lambda: len(stage.executions()) == 2, 6, "the other worker has it")
    assert time.monotonic() - begun < 6
    stage.wait_done(1)
    assert _calm(first)
    found = stage.job(job.id)
    assert [(one["worker"], one["ended"]) for one in found["handouts"]] == [("first", "left"), ("second", "done")]
    assert found["losses"] == 0
    stage.check(jobs.app.counts)


def test_a_second_signal_ends_a_worker_at_once(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL)
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    worker.signal(signal.SIGTERM)
    wait_for(lambda: "leaving" in worker.output, 5, "the worker drains")
    time.sleep(0.15)  # two that come together are one
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == 0
    assert _calm(worker)
    found = stage.job(job.id)
    assert (found["state"], [one["ended"] for one in found["handouts"]]) == ("ready", ["left"])
    stage.check(jobs.app.counts)


def test_two_signals_at_once(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "5s")
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGTERM)
    stage.let_go()
    assert worker.wait(10) == 0
    assert _calm(worker)
    assert stage.job(job.id)["state"] == "done"
    stage.check(jobs.app.counts)


def test_ctrl_c_reaches_the_whole_group(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL)
    jobs.hold.delay(1)
    jobs.work.delay(2, 0.3)
    wait_for(lambda: len(stage.executions()) == 2, 10, "both jobs have started")
    worker.signal_group(signal.SIGINT)
    wait_for(lambda: stage.totals()["done"] == 1, 5, "the short job still finishes")
    worker.signal_group(signal.SIGINT)
    assert worker.wait(5) == 0
    assert _calm(worker)
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["ready"], totals["handouts"]["left"]) == (1, 1, 1)


def test_a_worker_leaves_while_the_server_is_away(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "15s")
    address = stage.url.removeprefix("tenure://")
    job = jobs.work.delay(1, 0.5)
    wait_for(stage.executions, 10, "the job has started")
    process.kill(stage.server.pid)
    stage.server.wait()
    worker.signal(signal.SIGTERM)
    wait_for(lambda: stage.executions()[0].ended, 5, "the job has ended")
    stage.start_server(address)
    assert worker.wait(10) == 0
    assert _calm(worker)
    assert stage.job(job.id)["state"] == "done"
    stage.check(jobs.app.counts)


def test_a_worker_that_holds_nothing_leaves_soon_while_the_server_is_away(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "25s")
    jobs.work.delay(1)
    stage.wait_done(1)
    process.kill(stage.server.pid)
    stage.server.wait()
    begun = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert time.monotonic() - begun < 8
    assert _calm(worker)
    assert "given back" not in worker.output
    assert "come back" not in worker.output
    assert "counts: done=1 " in worker.output
    stage.start_server(stage.url.removeprefix("tenure://"))
    stage.check(jobs.app.counts)


def test_a_server_ends_and_another_goes_on(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL)
    address = stage.url.removeprefix("tenure://")
    jobs.work.delay(1)
    stage.wait_done(1)
    wait_for(lambda: stage.ask("queues")[0]["waiting"] > 0, 5, "takes are parked")
    begun = time.monotonic()
    assert stage.server.stop(5) == 0
    assert time.monotonic() - begun < 3
    assert "Traceback" not in stage.server.output
    assert not (stage.place / "jobs.db-wal").exists()
    stage.start_server(address)
    jobs.work.delay(2)
    stage.wait_done(2)
    assert _calm(worker)
    assert len(worker.children) == 2
    stage.check(jobs.app.counts)
