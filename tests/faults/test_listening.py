"""A process that cannot run reads no answer: what it was given meanwhile is not stranded, and counts no loss."""

from __future__ import annotations

import signal
import time
from typing import Any

from tenure import Job, clock
from tenure.faults import process
from tenure.wire.replies import parse_jobs
from tests.stage.apps import leases
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.raw import RawClient, add_line, new_id
from tests.stage.sizes import sized

APP = leases.__name__
HOG = sized(5, 9)
VT = sized(3.5, 5.0)
BACK = 2.25
"""Seconds from the hand-out of a job that is not read until another worker may have it."""

OPTIONS = ("--processes", "2", "--threads", "2", "--visibility-timeout", f"{VT}s")


def _begin(stage: Stage) -> None:
    stage.start_server("127.0.0.1:0")
    stage.use(leases.app)


def _given_back(stage: Stage, jobs: list[Job[Any]]) -> list[float]:
    """How long each hand-out lasted that nobody read."""
    ended = [one for job in jobs for one in stage.job(job.id)["handouts"] if one["ended"] == "left"]
    return [(one["end_at"] - one["begin_at"]) / 1000 for one in ended]


def test_jobs_of_processes_that_cannot_listen_are_never_lost(bare: Stage) -> None:
    """Four jobs that each hold an interpreter: both processes have asked for one more before they hang."""
    _begin(bare)
    bare.start_worker("hangs", *OPTIONS, app=APP)
    hogs: list[Job[Any]] = [leases.hog.delay(HOG) for _ in range(4)]
    others: list[Job[Any]] = [leases.long.delay(0.0) for _ in range(6)]
    bare.wait_done(10, 6 * HOG)
    losses = [bare.job(job.id)["losses"] for job in (*hogs, *others)]
    unread = _given_back(bare, hogs + others)
    print(f"losses: {sum(losses)}; given back unread after {[round(seconds, 2) for seconds in unread]} s")
    assert losses == [0] * 10
    if unread:
        recovered("a job that was handed to a process that cannot listen is free again", max(unread), BACK)
    bare.check(leases.app.counts)
    assert all(len(bare.executions(job.id)) == 1 for job in (*hogs, *others))


def test_a_stopped_process_keeps_nothing_that_it_has_not_read(bare: Stage) -> None:
    """The take that a process has open when it is stopped is given back, and the jobs that come then go elsewhere."""
    _begin(bare)
    stands = bare.start_worker("stands", "--processes", "1", "--threads", "2", "--visibility-timeout", "20s", app=APP)
    bare.start_worker("works", "--processes", "1", "--visibility-timeout", "20s", app=APP)
    leases.long.delay(0.0)
    bare.wait_done(1)
    (child,) = process.children(stands.pid)
    process.freeze(child)
    given_at = clock.boot()
    jobs: list[Job[Any]] = [leases.long.delay(0.0) for _ in range(4)]
    bare.wait_done(5, 15)
    recovered("a job that was handed to a stopped process is done elsewhere", clock.boot() - given_at, 1.0)
    process.thaw(child)
    assert [bare.job(job.id)["losses"] for job in jobs] == [0] * 4
    assert stands.stop() == 0
    bare.check(leases.app.counts)
    assert all(len(bare.executions(job.id)) == 1 for job in jobs)


def test_a_worker_that_is_told_to_leave_takes_nothing_more_also_where_it_cannot_listen(bare: Stage) -> None:
    """Its only process asks for a job for its second slot, and hangs in its first one before it can read the answer."""
    _begin(bare)
    options = ("--processes", "1", "--threads", "2", "--visibility-timeout", f"{VT}s", "--grace", "60s")
    worker = bare.start_worker("hangs", *options, app=APP)
    hog = leases.hog.delay(HOG)
    wait_for(lambda: bare.executions(hog.id), 15, "the process holds its interpreter")
    waiting: list[Job[Any]] = [leases.long.delay(0.0) for _ in range(4)]
    told_at, moment = clock.boot(), time.time()
    worker.signal(signal.SIGTERM)
    wait_for(lambda: _all_wait(bare, waiting), HOG - 1, "what was not read waits again")
    recovered("what a leaving process did not read is free again", clock.boot() - told_at, 1.0)
    assert worker.wait(4 * HOG) == 0
    for job in waiting:
        found = bare.job(job.id)
        assert (found["state"], found["losses"]) == ("ready", 0)
        assert all(one["begin_at"] / 1000 <= moment + 0.5 for one in found["handouts"]), "handed out after it"
    assert bare.job(hog.id)["state"] == "done"
    bare.check(leases.app.counts)


def _all_wait(stage: Stage, jobs: list[Job[Any]]) -> bool:
    return all(stage.job(job.id)["state"] == "ready" for job in jobs)


def test_who_has_gone_is_given_nothing_while_another_one_waits(bare: Stage) -> None:
    """The server meets the end of a connection whose take waits, and an add right behind it, in one look."""
    _begin(bare)
    with RawClient(bare.url) as producer, RawClient(bare.url) as works:
        producer.ask(add_line(new_id()))
        _done(works, works.ask(b"take 1 1 0 30000 raw\n"))
        for number in range(2, 12):
            gone = RawClient(bare.url)
            for client, line in (
                (gone, b"take 1 1 30000 30000 raw\n"),
                (works, b"take %d 1 30000 30000 raw\n" % number),
            ):
                client.send(line)
                time.sleep(0.02)
            process.freeze(bare.server.pid)
            gone.close()
            added_at = clock.boot()
            producer.send(add_line(new_id()))
            process.thaw(bare.server.pid)
            _done(works, works.hear(len(works.replies) + 1)[-1].line)
            recovered("a job goes to a worker that is there", clock.boot() - added_at, 0.5)
        assert len(producer.hear(12)) == 12
    totals = bare.totals()
    assert (totals["handed_out"], totals["done"]) == (11, 11)


def _done(client: RawClient, answer: bytes) -> None:
    """Settle the only job of the answer to a take, which came last."""
    (job,) = parse_jobs(answer, client.replies[-1].payload)
    assert client.ask(b"done %b:1\n" % job.id.hex().encode()) == b"ok done"
