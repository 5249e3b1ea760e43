"""The Python examples of the page on stopping jobs and queues do what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tenure import JobCancelled
from tenure.inspection import inspect
from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import blocks

APP, CANCEL, EXPIRE, CLOSED, PYTHON = blocks("operate.md")


@pytest.fixture
def names() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "shop"}
    exec(APP, found)
    return found


@pytest.fixture
def worker(names: dict[str, Any]) -> Iterator[InlineWorker]:
    with inline_worker(names["app"]) as worker:
        yield worker


def test_a_job_is_cancelled(names: dict[str, Any], worker: InlineWorker) -> None:
    exec(CANCEL, names)
    with pytest.raises(JobCancelled):
        names["job"].result(timeout=0)
    worker.clock.move(3601)
    assert worker.run_all() == 0


def test_a_task_that_looks_stops(names: dict[str, Any], worker: InlineWorker) -> None:
    job = names["import_catalogue"].delay(3)
    worker.run_all()
    assert job.result(timeout=0) == 3


def test_a_latest_start(names: dict[str, Any], worker: InlineWorker) -> None:
    exec(EXPIRE, names)
    worker.clock.move(timedelta(minutes=1))
    assert worker.run_all() == 1
    assert (names["soon"].state(), names["at_noon"].state()) == ("dead", "done")


def test_a_closed_queue(names: dict[str, Any], worker: InlineWorker) -> None:
    exec(CLOSED, names)
    assert names["offer"]("ann")
    worker.broker.admin().switch("close", "default")
    assert not names["offer"]("bob")


def test_the_operators_verbs_in_python(names: dict[str, Any]) -> None:
    app = names["app"]
    app.use_broker("memory://coupons")
    for customer in ("ann", "bob", "cleo"):
        names["send_coupon"].delay(customer)
    exec(PYTHON, names)
    app.close()
    with inspect("memory://coupons") as operator:
        assert operator.record(verify=True)["differences"] == []
