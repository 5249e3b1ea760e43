"""How workers and servers end: what runs is finished or given back, and nothing is printed that frightens."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from tenure import Job, clock
from tenure.faults import process
from tenure.worker.supervisor import START_TIME
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for
from tests.stage.sizes import seeds, sized

SMALL = ("--processes", "2", "--threads", "2")


def _calm(worker: Worker) -> bool:
    return "Traceback" not in worker.output and "Error" not in worker.output and "Exception" not in worker.output


def _ended(stage: Stage, job: Job[Any]) -> tuple[str, list[str]]:
    """Return a job's state, and how its hand-outs have ended."""
    found = stage.job(job.id)
    return found["state"], [one["ended"] for one in found["handouts"]]


def test_a_worker_finishes_what_runs(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "10s")
    running = [jobs.work.delay(number, sized(2.0, 5.0)) for number in range(4)]
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
    grace = sized(1.0, 3.0)
    first = stage.start_worker("first", *SMALL, "--grace", f"{grace}s")
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    stage.start_worker("second", *SMALL)
    told_at = clock.boot()
    first.signal(signal.SIGTERM)
    wait_for(lambda: len(stage.executions()) == 2, grace + 6, "the other worker has it")
    held, again = stage.executions()
    recovered("a job that outlasts the grace time runs elsewhere", again.start - told_at - grace, 1.0)
    assert held.last >= told_at + grace - 0.2, "it had all of the grace time"
    assert first.wait() == 0
    stage.wait_done(1)
    assert _calm(first)
    found = stage.job(job.id)
    assert [(one["worker"], one["ended"]) for one in found["handouts"]] == [("first", "left"), ("second", "done")]
    assert found["losses"] == 0
    stage.check(jobs.app.counts)


def test_a_signal_reaches_the_whole_group(stage: Stage) -> None:
    worker = stage.start_worker("w", *SMALL, "--grace", "1s")
    held = jobs.hold.delay(1)
    short = jobs.work.delay(2, 0.5)
    wait_for(lambda: len(stage.executions()) == 2, 10, "both jobs have started")
    worker.signal_group(signal.SIGTERM)
    worker.signal_group(signal.SIGTERM)  # at once, which means the same: GNU timeout does that
    assert worker.wait() == 0
    assert _calm(worker)
    assert (stage.job(short.id)["state"], _ended(stage, held)) == ("done", ("ready", ["left"]))
    stage.check(jobs.app.counts)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "Ctrl+C"])
def test_a_second_signal_ends_a_worker_at_once(stage: Stage, number: int) -> None:
    worker = stage.start_worker("w", *SMALL)
    job = jobs.hold.delay(1)
    jobs.work.delay(2, 0.3)
    wait_for(lambda: len(stage.executions()) == 2, 10, "both jobs have started")
    worker.signal_group(number)
    wait_for(lambda: stage.totals()["done"] == 1, 5, "the short job still finishes")
    worker.signal_group(number)
    begun = time.monotonic()
    assert worker.wait(10) == 0
    recovered("a second signal ends a worker", time.monotonic() - begun, 1.0)
    assert _calm(worker)
    assert _ended(stage, job) == ("ready", ["left"])
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["done"], totals["ready"], totals["handouts"]["left"]) == (1, 1, 1)


def test_two_signals_fifty_milliseconds_apart(stage: Stage) -> None:
    rounds, grace, hard = sized(3, 100), 3.0, 0
    held = []
    for number in range(rounds):
        worker = stage.start_worker(f"w{number}", "--processes", "1", "--threads", "2", "--grace", f"{grace}s")
        job = jobs.hold.delay(number)
        held.append(job)
        wait_for(lambda id=job.id: stage.executions(id), 10, "the job has started")  # type: ignore[misc]
        begun = time.monotonic()
        worker.signal_group(signal.SIGINT)
        time.sleep(0.05)
        worker.signal_group(signal.SIGINT)
        assert worker.wait() == 0
        hard += time.monotonic() - begun < grace
        assert _calm(worker)
        assert _ended(stage, job) == ("ready", ["left"])
    assert hard > rounds / 2, "the second one ends it at once, unless a busy machine shows both in the same moment"
    stage.start_worker("last", *SMALL)
    stage.wait_done(rounds)
    assert [_ended(stage, job) for job in held] == [("done", ["left", "done"])] * rounds
    stage.check(jobs.app.counts)


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_workers_are_told_to_leave_right_after_their_start(stage: Stage, seed: int) -> None:
    print(f"seed {seed}")
    rounds = 25
    rng = Random(seed)
    early: list[Worker] = []

    def play(number: int, waits: bool, pause: float) -> None:
        jobs.work.delay(number)
        worker = stage.start_worker(f"w{number}", "--processes", "1", "--threads", "1", wait=waits)
        time.sleep(pause)
        worker.signal(signal.SIGTERM)
        code = worker.wait(30)
        if not waits and not worker.output and not worker.counts_file.exists():
            early.append(worker)  # while the command was imported, or before it had any say in it: without a process
            assert code in (0, -signal.SIGTERM)
        else:
            assert code == 0, worker.output
        assert _calm(worker)

    # In the first moments of the command, all along its start, and in the first moments of taking jobs.
    plans = [(False, 0.05), (False, 1.0), (True, 0.05), (True, 0.05), (True, 0.05)]
    with ThreadPoolExecutor(4) as threads:
        played = [
            threads.submit(play, number, waits, rng.uniform(0.0, longest))
            for number, (waits, longest) in enumerate(plans * (rounds // len(plans)))
        ]
        for one in played:
            one.result()
    assert stage.totals()["running"] == 0, "nothing is left leased"
    stage.start_worker("last", *SMALL)
    stage.wait_done(rounds)
    totals = stage.check(jobs.app.counts, killed=tuple(early))["totals"]
    assert (totals["done"], totals["handouts"]["returned"], totals["handouts"]["lost"]) == (rounds, 0, 0)


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


def test_a_worker_leaves_soon_whose_app_is_being_imported(stage: Stage) -> None:
    (stage.place / "slow_shop.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    worker = stage.start_worker("w", *SMALL, "--grace", "25s", app="slow_shop", wait=False)
    wait_for(lambda: "importing" in worker.output, 20, "the import has begun")
    begun = time.monotonic()
    worker.signal(signal.SIGINT)
    assert worker.wait(15) == 0
    assert time.monotonic() - begun < 3 * START_TIME
    assert _calm(worker)


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


@pytest.mark.parametrize("what", ["worker", "server"])
def test_signals_that_keep_coming_change_nothing_about_the_end(bare: Stage, what: str) -> None:
    """Also while the interpreter takes itself down, when the handlers of a program are gone."""
    for number in range(sized(3, 30)):
        bare.start_server("127.0.0.1:0", "--data", str(bare.place / f"{what}{number}.db"))
        bare.use(jobs.app)
        running = bare.start_worker(f"w{number}", *SMALL) if what == "worker" else bare.server
        while process.state(running.pid) not in (None, "Z"):
            running.signal(signal.SIGTERM)
            time.sleep(0.04)
        assert running.wait() == 0
        assert "Traceback" not in running.output
        if what == "worker":
            assert "counts: done=0" in running.output
            assert bare.server.stop() == 0
