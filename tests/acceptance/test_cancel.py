"""Jobs that are not wanted any more, with real servers and workers."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure import JobCancelled, JobNotFound
from tenure.faults import process
from tenure.ids import new_id
from tests.stage.apps import operated
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized

APP = "tests.stage.apps.operated"
LEARNS = 1.3
"""Seconds within which a running job learns that it is cancelled: a second from one extend to the next, and a look."""


@pytest.fixture
def stage(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(operated.app)
    return bare


def test_a_job_that_is_cancelled_while_nobody_listens_never_runs(stage: Stage) -> None:
    waits, later, wanted = (
        operated.work.delay(1), operated.work.options(delay=60).delay(2), operated.work.delay(3),
    )  # fmt: skip
    assert [waits.cancel(), later.cancel(), later.cancel()] == ["cancelled", "cancelled", "already cancelled"]
    process.kill(stage.server.pid)
    stage.server.wait()
    stage.start_server(stage.url.removeprefix("tenure://"))
    stage.start_worker("w", "--processes", "1", app=APP)
    assert wanted.result(timeout=20) == 3
    assert {one.job for one in stage.executions()} == {wanted.id}
    assert waits.state() == later.state() == "cancelled"
    with pytest.raises(JobCancelled):
        waits.result(timeout=0)
    totals = stage.check(operated.app.counts)["totals"]
    assert (totals["cancelled"], totals["handed_out"]) == (2, 1)


def test_a_running_job_is_asked_and_its_own_end_decides(stage: Stage) -> None:
    """Nothing that is asked to stop runs again; only what was done all the same is done."""
    stage.start_worker("w", "--processes", "1", app=APP)
    ends = {end: operated.look.delay(end) for end in ("discard", "raise", "return")}
    wait_for(lambda: len(stage.executions()) == 3, 20, "three jobs run")
    asked_at = time.monotonic()
    assert [job.cancel() for job in ends.values()] == ["asked"] * 3
    assert {end: job.wait(timeout=20) for end, job in ends.items()} == {
        "discard": "cancelled", "raise": "cancelled", "return": "done",
    }  # fmt: skip
    recovered("a running job learns that it is cancelled", time.monotonic() - asked_at, LEARNS)
    assert [job.cancel() for job in ends.values()] == ["already cancelled", "already cancelled", "already done"]
    totals = stage.check(operated.app.counts)["totals"]
    assert (totals["cancelled"], totals["done"], totals["handed_out"]) == (2, 1, 3)


def test_cancelling_what_has_ended_or_never_was_disturbs_nothing(stage: Stage) -> None:
    count = sized(100, 1_000)
    stage.start_worker("w", "--processes", "1", app=APP)
    done = [operated.work.delay(number) for number in range(count)]
    stage.wait_done(count)
    load = [operated.work.delay(number) for number in range(count)]
    answers = {job.cancel() for job in done}
    unknown = new_id()
    for _ in range(count):
        with pytest.raises(JobNotFound):
            operated.app.job(unknown).cancel()
    load += [operated.work.delay(number) for number in range(count)]
    stage.wait_done(3 * count)
    assert answers == {"already done"}
    assert {one.state() for one in load[:: count // 10]} == {"done"}
    stage.check(operated.app.counts)


def test_a_cancel_of_nothing_is_not_kept(stage: Stage) -> None:
    """Neither the id nor the key of a job that is cancelled, or that never was, keeps a later one from running."""
    stage.start_worker("w", "--processes", "1", app=APP)
    id = new_id()
    with pytest.raises(JobNotFound):
        operated.app.job(id).cancel()
    assert operated.work.options(key=id).delay(1).result(timeout=20) == 1
    first = operated.work.options(key="k", delay=60).delay(2)
    assert first.cancel() == "cancelled"
    second = operated.work.options(key="k").delay(2)
    assert second.created
    assert second.result(timeout=20) == 2
    stage.check(operated.app.counts)


def test_the_first_job_is_meant_by_every_handle_of_its_key_also_from_a_coroutine(stage: Stage) -> None:
    first, second = (operated.work.options(key="k", delay=60).delay(1) for _ in range(2))

    async def cancel() -> str:
        return await second.acancel()

    assert asyncio.run(cancel()) == "cancelled"
    assert first.state() == "cancelled"
    assert stage.check(operated.app.counts)["totals"]["cancelled"] == 1
