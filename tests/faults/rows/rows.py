"""The faults, one function each: what is broken, and what the figures say."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tenure import clock
from tenure.faults import process
from tests.faults.rows.scene import PATIENCE, VISIBILITY_TIMEOUT, Reached, Scene
from tests.stage.apps import jobs
from tests.stage.by_hand import add_by_hand
from tests.stage.harness import wait_for


@dataclass(frozen=True)
class Row:
    """A fault, what must be reached under it, and the function that finds out."""

    name: str
    fault: str
    must: str
    run: Callable[[Scene], Reached]


ROWS: list[Row] = []


def row(fault: str, must: str) -> Callable[[Callable[[Scene], Reached]], Callable[[Scene], Reached]]:
    """Put the function into the table under its own name."""

    def put(run: Callable[[Scene], Reached]) -> Callable[[Scene], Reached]:
        ROWS.append(Row(run.__name__, fault, must, run))
        return run

    return put


@row("worker tree killed, restarted: job again", "6 s (visibility timeout + 1 s), none lost")
def worker_killed(scene: Scene) -> Reached:
    first = scene.worker("first")
    held = scene.hold()
    scene.add()
    first.signal_group(signal.SIGKILL)
    killed_at = clock.boot()
    first.wait()
    scene.worker("second")
    again = scene.again_after(held, killed_at)
    # The other slot may have been in the middle of a short job.
    return scene.end(again, VISIBILITY_TIMEOUT + 1.0, twice=2, killed=(first,))


@row("only the process that runs the job killed: job again", "1 s, worker stays")
def process_killed(scene: Scene) -> Reached:
    worker = scene.worker(processes=2)
    held = scene.hold()
    scene.add()
    process.kill(held.pid)
    again = scene.again_after(held, clock.boot())
    wait_for(lambda: len(worker.children) == 2, PATIENCE, "the worker has two processes again")
    return scene.end(again, 1.0, twice=1)


@row("all connections reset once: no job starts for", "0.3 s, none twice, none lost")
def cut(scene: Scene) -> Reached:
    cut_at = scene.working()
    assert scene.at_worker.cut() > 0
    assert scene.at_producer.cut() > 0
    scene.add(10)
    return scene.end(scene.pause_since(cut_at), 0.3)


@row("ten resets right after accept: no job starts for", "2 s, none twice, none lost")
def cut_on_accept(scene: Scene) -> Reached:
    cut_at = scene.working()
    scene.at_worker.cut_on_accept(10)
    assert scene.at_worker.cut() > 0
    return scene.end(scene.pause_since(cut_at), 2.0)


@row("silent server, new connections work: no job starts for", "2 s, none twice, none lost")
def silent(scene: Scene) -> Reached:
    silent_at = scene.working()
    assert scene.at_worker.stall(None) > 0
    return scene.end(scene.pause_since(silent_at), 2.0)


@row("silent server, new connections work: the producer's call", "OK within 2 s, run once")
def silent_to_producer(scene: Scene) -> Reached:
    scene.worker()
    scene.add()
    assert scene.at_producer.stall(None) > 0
    called_at = clock.boot()
    (job,) = scene.add(1)
    waited = clock.boot() - called_at
    assert job.created
    return scene.end(waited, 2.0)


@row("server frozen for 10 s: after that no job starts for", "2 s, none lost, none twice")
def frozen(scene: Scene) -> Reached:
    scene.working()
    process.freeze(scene.stage.server.pid)
    try:
        time.sleep(10.0)
    finally:
        process.thaw(scene.stage.server.pid)
    return scene.end(scene.pause_since(clock.boot()), 2.0)


def restart_server(scene: Scene) -> None:
    """Kill the server and start it again on the same address and file."""
    process.kill(scene.stage.server.pid)
    scene.stage.server.wait()
    scene.stage.start_server(scene.stage.url.removeprefix("tenure://"))


@row("server killed after 200 OKs, restarted", "0 lost, as shipped")
def server_killed_full_of_jobs(scene: Scene) -> Reached:
    scene.add()
    restart_server(scene)
    scene.worker()
    return scene.end()


@row("server killed in mid-run, restarted: no job starts for", "2 s, none lost")
def server_killed(scene: Scene) -> Reached:
    scene.working()
    restart_server(scene)
    return scene.end(scene.pause_since(clock.boot()), 2.0)


@row("the answer that carries jobs is lost: no job starts for", "0.3 s (at once), none lost, none stranded")
def take_answer_lost(scene: Scene) -> Reached:
    lost_at = scene.working()
    scene.lossy.verbs = (b"take",)
    scene.lossy.times = 3
    reached = scene.end(scene.pause_since(lost_at), 0.3)
    assert scene.lossy.lost[b"take"] == 3
    return reached


@row("the answer to the producer is lost: its call", "OK, run once")
def add_answer_lost(scene: Scene) -> Reached:
    scene.worker()
    scene.add(1)
    scene.lossy.verbs = (b"add",)
    scene.lossy.times = 1
    called_at = clock.boot()
    (job,) = scene.add(1)
    waited = clock.boot() - called_at
    assert (job.created, scene.lossy.lost[b"add"]) == (True, 1)
    return scene.end(waited, 2.0)


@row("12 s job, 5 s visibility timeout, two workers", "1 run")
def long_job(scene: Scene) -> Reached:
    for name in ("one", "two"):
        scene.worker(name)
    scene.add(1, 12.0)
    return scene.end()


@row("job that kills its process", "dead after its limit, others done")
def poison(scene: Scene) -> Reached:
    job = jobs.poison.delay()
    scene.working()
    wait_for(lambda: scene.stage.job(job.id)["state"] == "dead", PATIENCE, "the job is dead")
    runs, limit = len(scene.stage.executions(job.id)), scene.stage.job(job.id)["max_losses"]
    # Each loss may have met one short job in the other slot.
    reached = scene.end(twice=runs)
    return Reached(f"dead after {runs} runs of {limit}; others: {reached.text}", reached.holds and runs == limit)


@row("garbage on the queue", "dead list, worker goes on")
def garbage(scene: Scene) -> Reached:
    bodies = [b"garbage", b"", b"\x00\xff" * 300, b"\xc1" * 5]
    ids = add_by_hand(scene.stage.url, bodies)
    scene.working()
    reached = scene.end(by_hand=len(ids))
    dead = {one["id"] for one in scene.stage.ask("dead", "ls")}
    return Reached(f"{len(dead)} of {len(ids)} dead; others: {reached.text}", reached.holds and dead == set(ids))


@row("SIGTERM during a 5 s job", "finishes")
def leaving(scene: Scene) -> Reached:
    worker = scene.worker()
    (job,) = scene.add(1, 5.0)
    wait_for(lambda: scene.stage.executions(job.id), PATIENCE, "the job has started")
    code = worker.stop(PATIENCE)
    ended = [one["ended"] for one in scene.stage.job(job.id)["handouts"]]
    reached = scene.end()
    return Reached(f"exit code {code}, {ended[0]}; {reached.text}", reached.holds and (code, ended) == (0, ["done"]))
