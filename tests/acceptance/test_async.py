"""Coroutines in a worker, what a job knows and says of itself, and processes that tasks and servers start."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenure.context import Progress
from tenure.faults import process
from tests.stage.apps import coroutines
from tests.stage.harness import Stage, Worker, wait_for

APP = "tests.stage.apps.coroutines"


@pytest.fixture
def shop(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(coroutines.app)
    return bare


def start(stage: Stage, name: str = "w", *options: str) -> Worker:
    return stage.start_worker(name, *(options or ("--processes", "1")), app=APP)


def notes(stage: Stage, what: str) -> list[dict[str, Any]]:
    """Return the notes that have this word."""
    file = stage.place / "notes"
    lines = file.read_text().splitlines() if file.exists() else []
    return [note for note in map(json.loads, lines) if what in note]


def test_all_coroutines_of_a_process_share_one_loop_and_no_variables(shop: Stage) -> None:
    worker = start(shop, "w", "--processes", "2", "--async-slots", "20")
    coroutines.app.add_many([coroutines.fetch.s(number) for number in range(100)])
    wait_for(lambda: len(notes(shop, "loop")) > 20, 10, "some have run")
    os.kill(worker.children[0], signal.SIGKILL)
    shop.wait_done(100, 30)
    seen = notes(shop, "loop")
    assert len({(note["pid"], note["loop"]) for note in seen}) == len({note["pid"] for note in seen})
    assert {note["tenant"] for note in seen} == {"nobody"}
    assert {note["thread"] for note in seen} == {"tenure-loop"}
    totals = shop.check(coroutines.app.counts)["totals"]
    assert totals["handouts"]["retried"] == 15  # each of which met the same pool again


def test_nothing_leaks_between_jobs_in_threads(shop: Stage) -> None:
    coroutines.app.add_many([coroutines.tells.s() for _ in range(20)])
    start(shop, "w", "--processes", "1", "--threads", "2")
    shop.wait_done(20)
    assert {note["tenant"] for note in notes(shop, "tenant")} == {"nobody"}
    shop.check(coroutines.app.counts)


def test_as_many_run_at_once_as_there_are_async_slots(shop: Stage) -> None:
    coroutines.app.add_many([coroutines.sleeps.s(1.0) for _ in range(120)])
    start(shop, "w", "--processes", "1", "--threads", "1", "--async-slots", "40")
    shop.wait_done(120)
    assert max(note["running"] for note in notes(shop, "running")) == 40
    shop.check(coroutines.app.counts)


def test_a_coroutine_that_blocks_its_loop_costs_no_lease(shop: Stage) -> None:
    start(shop, "w", "--processes", "2", "--visibility-timeout", "1s", "--async-slots", "2")
    coroutines.app.add_many([coroutines.blocks.s(3.0), *(coroutines.sleeps.s(2.5) for _ in range(3))])
    shop.wait_done(4)
    totals = shop.check(coroutines.app.counts)["totals"]
    assert (totals["handed_out"], totals["handouts"]["done"]) == (4, 4)


def test_no_job_is_taken_that_no_slot_is_free_for(shop: Stage) -> None:
    start(shop, "first", "--processes", "1", "--threads", "1")
    long = coroutines.steps.delay(1)
    wait_for(lambda: shop.totals()["running"] == 1, 10, "the only thread is taken")
    waiting = [coroutines.tells.delay() for _ in range(5)]
    coroutines.app.add_many([coroutines.sleeps.s(0.01) for _ in range(50)])
    shop.wait_done(50)  # the loop goes on taking
    assert {shop.job(job.id)["state"] for job in waiting} == {"ready"}
    start(shop, "second", "--processes", "1", "--threads", "2")
    shop.wait_done(55, 5)
    shop.let_go()
    shop.wait_done(56)
    assert shop.job(long.id)["handouts"][0]["worker"] == "first"
    assert shop.check(coroutines.app.counts)["totals"]["handouts"]["released"] == 0


def test_a_job_says_how_far_it_is_and_has_its_lease_extended(shop: Stage) -> None:
    start(shop)
    job = coroutines.steps.delay(7)
    progress = wait_for(job.progress, 3, "a progress has come")
    assert progress == Progress(7, 7, "step 7")
    time.sleep(0.5)
    shop.let_go()
    assert job.result(timeout=10) == 7
    assert notes(shop, "extended")[0]["extended"] is True
    assert job.progress() is None
    shop.check(coroutines.app.counts)


def test_jobs_added_from_the_loop(shop: Stage) -> None:
    worker = start(shop)
    ids = coroutines.fans.delay(200).result(timeout=20)
    assert len(set(ids)) == 200
    shop.wait_done(201)
    assert worker.stop() == 0
    produced = coroutines.app.counts
    shop.check(produced._replace(added=produced.added + 200))


def test_a_coroutine_that_does_not_finish_in_time_cleans_up_and_its_job_runs_elsewhere(shop: Stage) -> None:
    first = start(shop, "first", "--processes", "1", "--grace", "2s")
    job = coroutines.held.delay()
    wait_for(lambda: notes(shop, "started"), 10, "it runs")
    start(shop, "second")
    assert first.stop(10) == 0
    wait_for(lambda: len(notes(shop, "started")) == 2, 5, "the other worker has it")
    assert [note["stopping"] for note in notes(shop, "cancelled")] == [True]
    shop.let_go()
    shop.wait_done(1)
    found = shop.job(job.id)
    assert [(one["worker"], one["ended"]) for one in found["handouts"]] == [("first", "released"), ("second", "done")]
    assert (found["attempts"], found["losses"]) == (1, 0)
    shop.check(coroutines.app.counts)


def command(pid: int) -> str:
    """Return the command line of a process; empty for one that is defunct."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


@pytest.mark.parametrize("kind", ["fork", "spawn", "executor"])
def test_tasks_start_processes_of_their_own(shop: Stage, kind: str) -> None:
    worker = start(shop, "w", "--processes", "1", "--threads", "4")
    added = [coroutines.processes.delay(kind) for _ in range(4 if kind == "spawn" else 12)]
    assert {job.result(timeout=40) for job in added} == {285}
    (child,) = worker.children
    # `spawn` keeps a process of its own that watches over resources, which is no pool's.
    wait_for(lambda: all("resource_tracker" in command(pid) for pid in process.children(child)), 5, "none is left")
    shop.check(coroutines.app.counts)


FORKS_WHILE_THREADS_ADD = """
import os, threading
from tests.stage.apps import jobs

over = threading.Event()
def adds():
    while not over.is_set():
        jobs.work.delay(0)

threads = [threading.Thread(target=adds) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for _ in range(40):
    child = os.fork()
    if not child:
        jobs.work.delay(1)
        os._exit(0 if jobs.app.counts.added >= 1 else 3)
    children.append(child)
codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
over.set()
for thread in threads:
    thread.join()
print("codes", codes, "added", jobs.app.counts.added, flush=True)
"""


def test_a_process_forks_while_its_threads_add(stage: Stage) -> None:
    stage.env["TENURE_BROKER"] = stage.url
    producer = stage.start(
        [sys.executable, "-W", "ignore", "-c", FORKS_WHILE_THREADS_ADD], stage.place / "producer.log"
    )
    assert producer.wait(30) == 0, producer.output
    last = producer.output.splitlines()[-1].split()
    assert last[:2] == ["codes", "{0}"]
    totals = stage.ask("record", "--verify")["totals"]
    assert totals["added"] == int(last[-1]) + 40
    assert totals["duplicates"] == 0
