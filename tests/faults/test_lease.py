"""Leases: held as long as a job runs, whatever it does, and known to be lost before another worker has the job."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tenure import Job
from tenure.clock import boot
from tenure.faults import Proxy
from tests.stage.apps import leases
from tests.stage.figures import recovered
from tests.stage.harness import Stage, Worker, wait_for
from tests.stage.scripts import Hears
from tests.stage.sizes import sized

APP = leases.__name__
VT = sized(1.0, 2.0)
LONG = sized(6.0, 15.0)
HOG = sized(5, 12)


def _start(stage: Stage, *options: str) -> None:
    stage.start_server("127.0.0.1:0", *options)
    stage.use(leases.app)


def _worker(stage: Stage, name: str, vt: float, *options: str, broker: str | None = None) -> Worker:
    return stage.start_worker(name, *_options(vt), *options, app=APP, broker=broker)


def _another(stage: Stage, vt: float, *options: str) -> None:
    """Start a worker that takes whatever there is to take, as soon as it is there."""
    stage.start_worker("another", *_options(vt), *options, app=APP, wait=False)


def _options(vt: float) -> tuple[str, ...]:
    return ("--visibility-timeout", f"{vt:g}s", "--processes", "1", "--threads", "8")


def _started(stage: Stage, jobs: Sequence[Job[Any]]) -> None:
    wait_for(lambda: len(stage.executions()) == len(jobs), 15, "all jobs have started")


def _ends(stage: Stage, job: Job[Any]) -> list[str]:
    return [handout["ended"] for handout in stage.job(job.id)["handouts"]]


def test_jobs_that_take_longer_than_their_lease_run_once(bare: Stage) -> None:
    _start(bare)
    hears = Hears(b"extend")
    with Proxy(bare.url, script=hears) as proxy:
        _worker(bare, "busy", VT, broker=proxy.url)
        held = [leases.long.delay(LONG), leases.blocks.delay(LONG)]
        _started(bare, held)
        held.append(leases.hog.delay(HOG))
        _started(bare, held)
        _another(bare, VT, "--processes", "2")
        others = [leases.long.delay(0.0) for _ in range(20)]
        bare.wait_done(len(held) + len(others), 3 * LONG)
        for job in held:
            assert _ends(bare, job) == ["done"]
            _is_extended_every_third(job, hears)
        bare.check(leases.app.counts)
    # One of these may have been taken by the process that stood still; nobody has lost a second time.
    lost = [bare.job(job.id)["losses"] for job in others]
    print(f"lost once: {sum(lost)} of {len(others)}")
    assert max(lost) <= 1
    assert all(len(bare.executions(job.id)) == 1 for job in [*held, *others])


def _is_extended_every_third(job: Job[Any], hears: Hears) -> None:
    extends = [at for at, line in hears.lines if job.id.encode() in line]
    seconds = HOG if job.task == leases.hog.name else LONG
    longest = max(later - earlier for earlier, later in pairwise(extends))
    print(f"{job.task}: {len(extends)} extends in {seconds} s, at most {longest:.2f} s apart")
    assert 1.5 <= (len(extends) + 1) * VT / seconds <= 3.7
    assert longest < VT


def test_what_waits_and_what_is_slow_to_read_is_held_too(bare: Stage) -> None:
    _start(bare, "--max-body", "8MiB")
    _another(bare, 1.0, "--threads", "2")
    _worker(bare, "one", 1.0, "--threads", "2")
    jobs: list[Job[Any]] = [leases.long.delay(1.5) for _ in range(3)]
    weighed = leases.weighs.delay(leases.Slow(2.0, bytes(5_000_000)))
    bare.wait_done(4)
    for job in (*jobs, weighed):
        assert _ends(bare, job) == ["done"]
    assert weighed.result(timeout=5) == 5_000_000
    bare.check(leases.app.counts)
    assert len(bare.executions()) == 4


def test_thousands_of_jobs_under_a_short_lease_run_once_each(bare: Stage) -> None:
    count = sized(500, 5_000)
    _start(bare)
    text = "x" * 200
    added = leases.app.add_many([leases.tiny.s(number, text) for number in range(count)])
    jobs = [job for job in added if isinstance(job, Job)]
    _another(bare, 0.2, "--threads", "4")
    _worker(bare, "one", 0.2, "--threads", "4")
    bare.wait_done(count, 40)
    assert [job.result(timeout=5) for job in jobs] == [[number, text] for number in range(count)]
    bare.check(leases.app.counts)
    assert len(bare.executions()) == count


def test_a_cut_in_the_moment_when_a_function_returns(bare: Stage) -> None:
    _start(bare)
    with Proxy(bare.url) as proxy:
        _worker(bare, "behind", 10.0, broker=proxy.url)
        job = leases.finishes.delay(1)
        _started(bare, [job])
        _another(bare, 10.0)
        proxy.stall(2.0, new_connections=False)
        bare.let_go()
        bare.wait_done(1)
        assert _ends(bare, job) == ["done"]
        bare.check(leases.app.counts)


def test_connections_that_are_forgotten_while_a_job_runs(bare: Stage) -> None:
    vt = sized(3.0, 10.0)
    _start(bare)
    with Proxy(bare.url) as proxy:
        _worker(bare, "behind", vt, broker=proxy.url)
        job = leases.long.delay(1.5 * vt)
        _started(bare, [job])
        _another(bare, vt)
        end = boot() + 1.5 * vt
        while boot() < end:
            time.sleep(vt / 3)
            proxy.stall()  # those that are open, for ever
        bare.wait_done(1)
        assert _ends(bare, job) == ["done"]
        bare.check(leases.app.counts)


def test_a_worker_that_is_cut_off_ends_its_tasks_before_another_one_has_their_jobs(bare: Stage) -> None:
    _start(bare)
    with Proxy(bare.url) as proxy:
        cut_off = _worker(bare, "cut-off", 1.5, broker=proxy.url)
        jobs = [
            leases.ended.delay(1), leases.cancelled.delay(1), leases.runs_a_loop.delay(1), leases.looks.delay(),
            leases.finishes.delay(1),
        ]  # fmt: skip
        _started(bare, jobs)
        _worker(bare, "other", 1.5)
        proxy.stall(new_connections=False)
        stalled_at = boot()
        bare.wait_done(len(jobs))
        bare.let_go()
        proxy.pass_through()
        wait_for(lambda: bare.totals()["refused"] == len(jobs), 15, "each late word is refused")
        for job in jobs:
            assert _ends(bare, job) == ["returned", "done"]
            assert job.result(timeout=5) == f"hand-out 2 of {job.key}"
        bare.check(leases.app.counts)
    assert cut_off.counts["refused"] == len(jobs)
    assert cut_off.counts["done"] == 0
    for job in jobs:
        again_at = bare.executions(job.id)[1].start
        recovered("a job of a worker that is cut off runs elsewhere", again_at - stalled_at, 1.5 + 1.0)
    for job in jobs[:3]:
        first, second = bare.executions(job.id)
        assert first.ended
        print(f"{job.task}: ended {second.start - first.last:.3f} s before it began elsewhere")
        assert first.last < second.start
    seen = float((bare.place / "seen").read_text()) - bare.executions(jobs[3].id)[1].start
    recovered("a task that looks every 0.1 s sees that its lease is lost", max(0.0, seen), leases.PERIOD)


def test_a_worker_that_stood_still_for_two_leases(bare: Stage) -> None:
    _start(bare)
    still = _worker(bare, "still", 1.0)
    jobs = [leases.ended.delay(1), leases.cancelled.delay(1), leases.finishes.delay(1)]
    _started(bare, jobs)
    (child,) = still.children
    still.signal_group(signal.SIGSTOP)
    stopped_at = boot()
    try:
        _another(bare, 1.0)
        bare.wait_done(len(jobs))
        time.sleep(max(0.0, stopped_at + 2.0 - boot()))
    finally:
        still.signal_group(signal.SIGCONT)
    bare.let_go()
    wait_for(lambda: bare.totals()["refused"] == len(jobs), 15, "each late word is refused")
    for job in jobs:
        assert _ends(bare, job) == ["returned", "done"]
        assert job.result(timeout=5) == f"hand-out 2 of {job.key}"
    # What stands still cannot look at its deadline; that is what `current_job.fence` is for.
    bare.check(leases.app.counts, frozen=child)
    assert still.counts["refused"] == len(jobs)
    told = sorted((bare.place / "ends").read_text().splitlines())
    (other,) = (worker.name for worker in bare.workers if worker is not still)
    assert told == sorted(
        f"{who} {what} {job.id}" for job in jobs for who, what in ((other, "job.done"), ("still", "lease.lost"))
    )
