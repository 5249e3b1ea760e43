"""What a worker logs, and that it leaves the logging of the app alone."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tenure.signature import NO_OPTIONS
from tests.stage import marks
from tests.stage.harness import Stage, wait_for

APP = "tests.stage.apps.logged"
SECRET = "marker-4711"


@pytest.fixture
def logged(bare: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The app, in a process that sets no logging."""
    monkeypatch.setenv(marks.FOLDER, str(bare.place))
    bare.start_server()
    module = importlib.import_module(APP)
    bare.use(module.app)
    yield module
    del sys.modules[APP]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_line_of_a_task_comes_once_in_the_apps_own_form_with_its_job(
    bare: Stage, logged: ModuleType, when: str
) -> None:
    bare.env["LOGGING_SET"] = when
    worker = bare.start_worker("w", "--processes", "1", app=APP)
    job = logged.once.delay(SECRET)
    bare.wait_done(1)
    assert worker.stop() == 0
    own = (bare.place / "own.log").read_text().splitlines()
    assert own == ["own INFO shop.orders ready |   0", f"own INFO shop.orders packed | {job.id} once 1"]
    assert "packed" not in worker.output
    assert len(re.findall(rf"(?m)INFO .*start once {job.id} attempt 1$", worker.output)) == 1
    assert len(re.findall(rf"(?m)INFO .*done once {job.id} attempt 1 in", worker.output)) == 1


def objects(text: str) -> list[dict[str, Any]]:
    """The lines of a worker that are JSON."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_as_json_each_line_names_its_job_and_no_line_its_arguments(bare: Stage, logged: ModuleType) -> None:
    worker = bare.start_worker("w", "--processes", "1", "--log-format", "json", app=APP)
    done = logged.once.delay(SECRET)
    dead = logged.fails.options(key="k").delay(SECRET, note=SECRET)
    unkept = logged.afails.delay(SECRET)
    logged.app.add_message(logged.once.message((SECRET,), {}, NO_OPTIONS)._replace(task="typed"))
    wait_for(lambda: bare.totals()["dead"] == 2 and bare.totals()["done"] == 2, 15, "all are over")
    assert worker.stop() == 0
    lines = objects(worker.output)
    of_dead = [(line["level"], line["message"].split()[0], line["attempt"]) for line in lines if ids(line) == dead.id]
    assert of_dead == [
        ("info", "start", 1), ("info", "fails", 1), ("warning", "retry", 1),
        ("info", "start", 2), ("info", "fails", 2), ("error", "dead", 2),
    ]  # fmt: skip
    assert {line.get("job_key") for line in lines if ids(line) == dead.id} == {"k", None}
    assert {line["task"] for line in lines if ids(line) == done.id} == {"once"}
    assert any("is not kept" in line["message"] for line in lines if ids(line) == unkept.id)
    not_json = [line for line in worker.output.splitlines() if not line.startswith("{")]
    assert len(not_json) <= 1, not_json  # the counts, on stdout
    assert [line["message"].split(": ")[1] for line in lines if line.get("task") == "typed"] == ["bad arguments"]
    assert SECRET not in worker.output
    bare.check(logged.app.counts)


def ids(line: dict[str, Any]) -> str | None:
    """The job that a line names."""
    return line.get("job_id")
