"""`tenure worker --health`: what it answers while slots are busy, the broker is away, and processes do not work."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time
from typing import Any, NamedTuple

from tenure.faults import process
from tests.stage.apps import awkward, jobs
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for

HEALTH = ("--health", "127.0.0.1:0")
ONE = ("--processes", "1", "--threads", "1", *HEALTH)
SOON = 0.1
TWO_HEARTBEATS = 2.0


class Answered(NamedTuple):
    ok: bool
    body: dict[str, Any]
    seconds: float


def ask(worker: Worker, path: str = "/ready") -> Answered:
    """Ask a worker for its health."""
    found = re.search(r"health on http://([\d.:]+)/live", worker.output)
    assert found
    begun = time.monotonic()
    connection = http.client.HTTPConnection(found[1], timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answered(response.status == 200, json.loads(response.read()), time.monotonic() - begun)
    finally:
        connection.close()


def wait_until(worker: Worker, ready: bool, what: str, promised: float) -> dict[str, Any]:
    """Wait until a worker is ready or not, holding the time against what is promised; it lives throughout."""
    begun = time.monotonic()

    def turned() -> dict[str, Any] | None:
        assert ask(worker, "/live").ok
        answered = ask(worker)
        return answered.body if answered.ok is ready else None

    body: dict[str, Any] | None = wait_for(turned, 3 * promised + 5, what)
    recovered(what, time.monotonic() - begun, promised)
    assert body is not None
    return body


def test_a_busy_worker_is_ready_until_the_broker_falls_silent_or_it_leaves(stage: Stage) -> None:
    worker = stage.start_worker("w", *ONE, "--visibility-timeout", "30s")
    job = jobs.hold.delay(1)
    wait_for(stage.executions, 10, "the job has started")
    time.sleep(TWO_HEARTBEATS + 0.5)
    answers = [ask(worker) for _ in range(20)]
    assert all(one.ok for one in answers), "nothing was taken for longer than two heartbeats, for no slot is free"
    assert answers[-1].body["processes"] == [{"pid": worker.children[0], "state": "busy"}]
    recovered("health is told while every slot is busy", sorted(one.seconds for one in answers)[-2], SOON)
    process.freeze(stage.server.pid)
    try:
        body = wait_until(worker, False, "a frozen broker turns health red", TWO_HEARTBEATS)
        assert body["why"][0].startswith("the broker has not answered for ")
        assert body["processes"][0]["state"] == "busy"
    finally:
        process.thaw(stage.server.pid)
    wait_until(worker, True, "health is green again once the broker answers", TWO_HEARTBEATS)
    worker.signal(signal.SIGTERM)
    assert wait_until(worker, False, "a worker that leaves is not ready", 0.5)["why"] == ["the worker is leaving"]
    stage.let_go()
    assert worker.wait() == 0
    assert [one["ended"] for one in stage.job(job.id)["handouts"]] == ["done"]
    stage.check(jobs.app.counts)


def test_a_worker_without_a_broker_lives_and_is_not_ready(stage: Stage) -> None:
    worker = stage.start_worker("w", *ONE)
    address = stage.url.removeprefix("tenure://")
    wait_until(worker, True, "health is green after the start", 1.0)
    process.kill(stage.server.pid)
    stage.server.wait()
    wait_until(worker, False, "a killed broker turns health red", TWO_HEARTBEATS)
    wait_for(lambda: "no connection to the server" in ask(worker).body["why"][0], 9, "it says what is wrong")
    wait_for(lambda: "silent" in str(ask(worker).body["processes"]), 9, "its process is not answered either")
    told = stage.run("health", re.findall(r"http://([\d.:]+)/live", worker.output)[0], code=1)
    assert "not ready: the broker has not answered for " in told.stdout
    stage.start_server(address)
    wait_until(worker, True, "health is green again once the broker is back", TWO_HEARTBEATS)
    assert stage.run("health", re.findall(r"http://([\d.:]+)/live", worker.output)[0]).stdout == "ready\n"
    stage.check(jobs.app.counts)


def test_health_is_told_while_a_job_holds_the_interpreter(bare: Stage) -> None:
    bare.start_server()
    bare.use(awkward.app)
    worker = bare.start_worker("w", *ONE, app=awkward.__name__)
    wait_until(worker, True, "health is green after the start", 1.0)
    awkward.deafen.delay(2500)
    wait_for(bare.executions, 10, "the job has started")
    answers = []
    while not bare.executions()[0].ended:
        answers.append(ask(worker))
        time.sleep(0.1)
    assert len(answers) >= 10
    assert all(one.ok for one in answers)
    recovered("health is told while a job holds the interpreter", sorted(one.seconds for one in answers)[-2], SOON)
    bare.wait_done(1)
    bare.check(awkward.app.counts)


def test_processes_that_are_slow_to_start_are_waited_for(bare: Stage) -> None:
    bare.start_server()
    bare.use(awkward.app)
    bare.env["START_SECONDS"] = "2.5"  # longer than two heartbeats
    args = (*ONE, "--max-jobs-per-process", "1")
    worker = bare.start_worker("w", *args, app=awkward.__name__, wait=False)
    wait_for(lambda: "health on" in worker.output, 10, "the worker tells its health")
    starting = re.compile(r"no worker process works: process \d+ has been starting for")
    wait_for(lambda: starting.match(ask(worker).body["why"][-1]), 5, "it says that its process is starting")
    wait_until(worker, True, "health is green once a slow process has started", 4.0)
    for number in range(2):
        awkward.work.delay(number)
    body = wait_until(worker, False, "a worker whose only process is spent is not ready", TWO_HEARTBEATS)
    assert [one["state"] for one in body["processes"]] == ["spent", "starting"]
    bare.wait_done(2)
    wait_until(worker, True, "health is green once the next process has started", 4.0)
    assert " ended (" not in worker.output
    assert len({one.pid for one in bare.executions()}) == 2
    bare.check(awkward.app.counts)


def test_a_frozen_process_is_no_working_slot_and_a_killed_one_is_replaced(stage: Stage) -> None:
    worker = stage.start_worker("w", *ONE)
    wait_until(worker, True, "health is green after the start", 1.0)
    child = worker.children[0]
    process.freeze(child)
    body = wait_until(worker, False, "a frozen process turns health red", TWO_HEARTBEATS)
    assert body["why"] == [f"no worker process works: process {child} is frozen"]
    process.kill(child)
    wait_until(worker, True, "a killed process is replaced", 2.0)
    assert worker.children[0] != child
    stage.check(jobs.app.counts)


def test_an_address_that_is_taken_ends_the_worker_with_its_reason(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        ended = stage.run("worker", "-A", jobs.__name__, "--broker", stage.url, "--health", address, code=1)
    assert ended.stderr == f"tenure: health cannot be answered at {address}: Address already in use\n"
