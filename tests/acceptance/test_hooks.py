"""Hooks at the start and the end of worker processes, also those that fail."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest

from tests.stage.apps import hooked
from tests.stage.harness import TENURE, Stage, wait_for

APP = "tests.stage.apps.hooked"


@pytest.fixture
def shop(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(hooked.app)
    return bare


def lines(stage: Stage) -> list[list[str]]:
    file = stage.place / "hooks"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_each_process_calls_them_around_its_jobs(shop: Stage) -> None:
    for _ in range(6):
        hooked.uses.delay()
    worker = shop.start_worker("w", "--processes", "2", app=APP)
    shop.wait_done(6)
    wait_for(lambda: sum(line[1] == "astart" for line in lines(shop)) == 2, 10, "both processes have started")
    assert worker.stop() == 0
    for pid in {line[0] for line in lines(shop)}:
        own = [line[1] for line in lines(shop) if line[0] == pid]
        assert [own[:2], own[-2:]] == [["start", "astart"], ["stop", "astop"]]
        assert set(own[2:-2]) <= {"job"}
    assert {line[2] for line in lines(shop) if line[1] == "job"} == {"['open']"}
    shop.check(hooked.app.counts)


def test_a_start_that_fails_is_shown_and_ends_the_worker(shop: Stage) -> None:
    shop.env["HOOKS_FAIL"] = "start"
    log = shop.place / "w.log"
    worker = shop.start([str(TENURE), "worker", "-A", APP, "--broker", shop.url, "--processes", "2"], log)
    assert worker.wait(10) == 1
    assert "the on_worker_start hook tests.stage.apps.hooked.opens has failed" in worker.output
    assert "ValueError: no database here" in worker.output
    assert worker.output.count("Traceback") == 1
    assert "process_hooks.py" not in worker.output  # the traceback begins at the user's own line
    assert [line[1] for line in lines(shop)] == ["failed"]


def test_a_later_start_that_fails_is_tried_again_more_and_more_rarely(shop: Stage) -> None:
    shop.env["HOOKS_FAIL"] = "start:later"
    worker = shop.start_worker("w", "--processes", "1", app=APP)
    (shop.place / "ready").touch()
    hooked.dies.options(max_attempts=1).delay()
    wait_for(lambda: sum(line[1] == "failed" for line in lines(shop)) >= 4, 20, "it is tried again")
    times = [float(line[-1]) for line in lines(shop) if line[1] == "failed"]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[2] > pauses[0] + 0.15
    (shop.place / "ready").unlink()
    wait_for(lambda: sum(line[1] == "start" for line in lines(shop)) == 2, 10, "a process starts again")
    (shop.place / "go").touch()
    assert worker.stop() == 0


def test_a_stop_that_fails_is_shown_and_the_worker_leaves_in_good_order(shop: Stage) -> None:
    shop.env["HOOKS_FAIL"] = "stop"
    worker = shop.start_worker("w", "--processes", "1", app=APP)
    hooked.uses.delay()
    shop.wait_done(1)
    assert worker.stop() == 0
    assert "on_worker_stop hook tests.stage.apps.hooked.closes has failed" in worker.output
    assert [line[1] for line in lines(shop)][-2:] == ["stop", "astop"]
    shop.check(hooked.app.counts)


ONE_PROCESS = """
import sys
from tests.stage.apps.hooked import app
worker = app.worker(async_slots=3)
import threading
threading.Timer(1.0, worker.stop).start()
print(worker.run().line())
"""


def test_a_worker_in_one_process_calls_them_too(shop: Stage) -> None:
    shop.env["TENURE_BROKER"] = shop.url
    hooked.uses.delay()
    ran = shop.start([sys.executable, "-c", ONE_PROCESS], shop.place / "own.log")
    assert ran.wait(10) == 0, ran.output
    assert [line[1] for line in lines(shop)] == ["start", "astart", "job", "stop", "astop"]
    shop.env["HOOKS_FAIL"] = "start"
    failed = shop.start([sys.executable, "-c", ONE_PROCESS], shop.place / "failed.log")
    assert failed.wait(10) == 1
    assert "no database here" in failed.output
