"""What an app has around its jobs, in a real worker of several processes."""

from __future__ import annotations

import os
from collections import Counter
from contextvars import copy_context
from typing import Any

import pytest

from tenure import JobFailed
from tests.stage import marks
from tests.stage.apps import flow
from tests.stage.harness import Stage, wait_for

APP = "tests.stage.apps.flow"
TENANTS = [f"tenant {n}" for n in range(20)]


@pytest.fixture
def shop(bare: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv(marks.FOLDER, str(bare.place))
    bare.start_server()
    bare.use(flow.app)
    return bare


def lines(stage: Stage, name: str) -> list[list[str]]:
    return [line.split() for line in (stage.place / name).read_text().splitlines()]


def add_as(tenant: str, task: Any) -> Any:
    def add() -> Any:
        flow.tenant.set(tenant)
        flow.private.set(tenant)
        return task.delay()

    return copy_context().run(add)


def test_each_job_finds_its_own_and_each_start_has_its_end(shop: Stage) -> None:
    jobs = {name: [add_as(name, flow.looks), add_as(name, flow.alooks)] for name in TENANTS}
    unset = [flow.looks.delay(), flow.alooks.delay()]
    failing, hanging = flow.fails.delay(), flow.hangs.delay()
    worker = shop.start_worker("w", "--processes", "2", "--threads", "2", "--async-slots", "5", app=APP)
    for name, pair in jobs.items():
        assert [job.result(timeout=20) for job in pair] == [[name, "unset"]] * 2
    assert [job.result(timeout=20) for job in unset] == [["nobody", "unset"]] * 2
    with pytest.raises(JobFailed, match="ValueError: no"):
        failing.result(timeout=20)
    with pytest.raises(JobFailed, match="TimeLimitExceeded"):
        hanging.result(timeout=20)
    assert worker.stop() == 0

    done = [job.id for pair in (*jobs.values(), unset) for job in pair]
    through = Counter(tuple(line) for line in lines(shop, "layers"))
    by = str(os.getpid())
    assert through == {**{(job, "returned", by): 1 for job in done}, (failing.id, "raised:no", by): 2}

    events = lines(shop, "events")
    of_worker = Counter(name for _, name, job, _ in events if job == "-")
    assert of_worker == {"worker.started": 2, "worker.stopped": 2}
    for job in done:
        assert [name for _, name, id, _ in events if id == job] == ["job.added", "job.started", "job.done"]
    assert [(name, attempt) for _, name, id, attempt in events if id == failing.id] == [
        ("job.added", "0"), ("job.started", "1"), ("job.retried", "1"), ("job.started", "2"), ("job.dead", "2"),
    ]  # fmt: skip

    assert [name for _, name, id, _ in events if id == hanging.id] == ["job.added", "job.started", "job.dead"]

    opened = lines(shop, "opened")
    assert [line[1] for line in opened if line[1] not in ("open", "close", "client")] == ["TimeLimitExceeded"]
    processes = {line[0] for line in opened if line[1:] == ["open"]}
    assert 1 <= len(processes) <= 2
    for pid in processes:
        assert [line[1] for line in opened if line[0] == pid and line[1] in ("open", "close")] == ["open", "close"]
    assert sum(line[1:] == ["client", "closed"] for line in opened) == len(TENANTS) + 1
    shop.check(flow.app.counts)


def test_other_processes_tell_what_became_of_jobs_that_cost_theirs(shop: Stage) -> None:
    shop.start_worker("w", "--processes", "2", "--isolate", app=APP)
    stuck = flow.sleeps.delay(60.0)
    with pytest.raises(JobFailed, match="TimeLimitExceeded"):
        stuck.result(timeout=20)
    wait_for((shop.place / "buried").exists, 15, "the hook of the first was called")
    crashing = flow.crashes.delay(7)
    with pytest.raises(JobFailed, match=r"worker lost \(exit code 7\)"):
        crashing.result(timeout=20)
    wait_for(lambda: len(lines(shop, "buried")) == 2, 15, "the hook of the second was called")
    shop.check(flow.app.counts)
    assert lines(shop, "buried") == [
        [stuck.id, "2", "60.0", "tenure.errors.TimeLimitExceeded"], [crashing.id, "1", "7"],
    ]  # fmt: skip
    told = [(id, name, attempt) for _, name, id, attempt in lines(shop, "events")]
    assert [one for one in told if one[0] != "-" and one[1] not in ("job.added", "job.started")] == [
        (stuck.id, "job.retried", "1"), (stuck.id, "job.dead", "2"), (crashing.id, "job.dead", "1"),
    ]  # fmt: skip
