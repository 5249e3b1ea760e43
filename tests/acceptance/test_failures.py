"""What becomes of jobs that fail, through a real server and worker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.stage import marks
from tests.stage.apps import failing
from tests.stage.harness import Stage, wait_for

APP = "tests.stage.apps.failing"


@pytest.fixture
def failures(bare: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv(marks.FOLDER, str(tmp_path))
    bare.start_server()
    bare.use(failing.app)
    return bare


def ended(stage: Stage, id: str) -> dict[str, Any]:
    """Wait for the end of a job and return all that is known of it."""

    def over() -> dict[str, Any]:
        job = stage.job(id)
        return job if job["state"] in ("done", "dead", "cancelled") else {}

    return wait_for(over, 15, f"the end of {id}")


def test_a_job_that_always_fails_runs_as_often_as_it_may_and_its_hooks_are_called_once(failures: Stage) -> None:
    worker = failures.start_worker("w", "--processes", "2", app=APP)
    job = failing.always.delay(7)
    found = ended(failures, job.id)
    assert found["reason"] == "gave up after 4 attempts: ValueError: attempt 4 of order 7"
    assert [one["ended"] for one in found["handouts"]] == ["retried", "retried", "retried", "dead"]
    assert len(failures.executions(job.id)) == 4
    assert [row["id"] for row in failures.ask("dead", "ls")] == [job.id]
    wait_for(lambda: len(failing.told()) == 2, 5, "both hooks were called")
    assert failing.told() == [
        [who, job.id, 4, found["reason"], [7], "ValueError", "attempt 4 of order 7"] for who in ("task", "app")
    ]
    failures.check(failing.app.counts)
    assert len(failing.told()) == 2
    assert "RuntimeError: a hook that fails" in worker.output


@pytest.mark.parametrize("task", [failing.shape, failing.async_shape], ids=["plain", "async"])
def test_exceptions_of_any_shape_are_kept_and_cost_no_slot(failures: Stage, task: Any) -> None:
    worker = failures.start_worker("w", "--processes", "1", "--threads", "2", app=APP)
    before = worker.children
    jobs = {name: task.delay(name).id for name in failing.SHAPES}
    found = {name: ended(failures, id) for name, id in jobs.items()}
    errors = {name: job["handouts"][-1]["error"] for name, job in found.items()}
    assert {(job["state"], job["attempts"], job["losses"]) for job in found.values()} == {("dead", 2, 0)}
    for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "OwnBase", "OddConstructor"):
        assert errors[name]["kind"].endswith(name)
        assert "raise error" in errors[name]["traceback"]
    assert errors["Unprintable"]["text"] == "<its text could not be made: RuntimeError>"
    assert "_thread.lock" in errors["unpicklable"]["text"]
    assert [link["kind"] for link in errors["group"]["chain"]] == [
        "ExceptionGroup",
        "KeyError",
        "OSError",
        "SystemExit",
    ]
    assert errors["noted"]["text"] == "with notes 😀 \\x00 \\udc80 \\x1b[31m"
    assert errors["noted"]["notes"] == ["note \\ud800"]
    assert errors["bytes"]["text"] == "'utf-8' codec can't decode byte 0xff in position 2: invalid start byte"
    assert len(errors["endless"]["text"]) <= 3072
    for name, id in jobs.items():
        shown = failures.told("job", id)
        assert name == "endless" or errors[name]["kind"] in shown
        assert "\0" not in shown
        assert "\x1b" not in shown
    pair = [failing.meet.delay() for _ in range(2)]
    assert {ended(failures, job.id)["state"] for job in pair} == {"done"}
    assert worker.children == before
    failures.check(failing.app.counts)


def test_what_a_task_asks_for(failures: Stage) -> None:
    failures.start_worker("w", "--processes", "1", app=APP)
    asked = ("retry", "retry for ever", "snooze", "dead", "discard", "retry_after", "unclear")
    jobs = {name: failing.asks.delay(name).id for name in asked}
    found = {name: ended(failures, id) for name, id in jobs.items() if name != "unclear"}
    ends = {
        name: (job["state"], job["attempts"], [one["ended"] for one in job["handouts"]]) for name, job in found.items()
    }
    assert ends == {
        "retry": ("done", 3, ["retried", "retried", "done"]),
        "retry for ever": ("dead", 3, ["retried", "retried", "dead"]),
        "snooze": ("done", 1, ["released", "released", "done"]),
        "dead": ("dead", 1, ["dead"]),
        "discard": ("cancelled", 1, ["cancelled"]),
        "retry_after": ("done", 3, ["retried", "retried", "done"]),
    }
    assert {name: found[name]["reason"] for name in ("retry for ever", "dead", "discard")} == {
        "retry for ever": "gave up after 3 attempts: still busy",
        "dead": "no such customer",
        "discard": "sold out",
    }
    assert [one["cause"] for one in found["snooze"]["handouts"]] == ["the shop is closed", "the shop is closed", ""]
    assert {job["losses"] for job in found.values()} == {0}
    first, second, _ = found["retry_after"]["handouts"]
    assert 500 <= second["begin_at"] - first["end_at"] <= 550 + 500
    unclear = failures.job(jobs["unclear"])
    assert (unclear["state"], unclear["attempts"]) == ("scheduled", 1)
    assert "Retry(delay=-1) is not possible: give seconds from 0" in unclear["handouts"][0]["error"]["text"]
    wait_for(lambda: len(failing.told()) == 2, 5, "the hook was called for both dead jobs")
    assert {(id, kind) for _, id, _, _, _, kind, _ in failing.told()} == {
        (jobs["dead"], "tenure.errors.Dead"), (jobs["retry for ever"], "tenure.errors.Retry"),
    }  # fmt: skip


def test_only_what_is_worth_it_is_tried_again(failures: Stage) -> None:
    failures.start_worker("w", "--processes", "1", app=APP)
    jobs = {name: failing.picky.delay(name).id for name in ("reset", "refused", "type")}
    found = {name: ended(failures, id) for name, id in jobs.items()}
    assert {name: (job["state"], job["attempts"]) for name, job in found.items()} == {
        "reset": ("done", 2), "refused": ("dead", 1), "type": ("dead", 1),
    }  # fmt: skip
    assert found["refused"]["reason"] == "not to be tried again (it is in give_up_on): ConnectionRefusedError: x"
    assert found["type"]["reason"] == "not to be tried again (it is not in retry_on): TypeError: x"
    failures.check(failing.app.counts)


def test_a_job_that_expires_calls_no_hook_and_one_that_kills_its_process_does(failures: Stage) -> None:
    expired = failing.quick.options(expires=0.2).delay(1)
    late = time.time() + 0.3
    wait_for(lambda: time.time() > late, 5, "it has expired")
    failures.start_worker("w", "--processes", "1", app=APP)
    assert ended(failures, failing.quick.delay(2).id)["state"] == "done"
    assert ended(failures, expired.id)["reason"] == "expired"
    lost = ended(failures, failing.kills.delay().id)
    assert (lost["state"], lost["attempts"], lost["losses"]) == ("dead", 0, 1)
    assert "SIGKILL" in lost["reason"]
    assert [row["id"] for row in failures.ask("dead", "ls")] == [expired.id, lost["id"]]
    wait_for(failing.told, 15, "another process has called the hook")
    totals = failures.check(failing.app.counts)["totals"]
    assert (totals["dead"], totals["expired"]) == (2, 1)
    assert failing.told() == [["app", lost["id"], 1, lost["reason"], [], "", lost["reason"]]]
