"""The examples of the page on organising tasks do what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import blocks

BLOCKS = blocks("organise-tasks.md")


@pytest.fixture
def names() -> dict[str, Any]:
    """The names that the page's first example leaves, and into which the others are run."""
    found: dict[str, Any] = {"__name__": "shop"}
    exec(BLOCKS[0], found)
    return found


@pytest.fixture
def worker(names: dict[str, Any]) -> Iterator[InlineWorker]:
    with inline_worker(names["app"]) as worker:
        yield worker


def test_a_group_and_its_route(names: dict[str, Any], worker: InlineWorker) -> None:
    job = names["send"].delay("ann", "hello")
    assert (job.task, job.queue) == ("mail.send", "mails")
    assert worker.run_all() == 1
    assert job.result(timeout=0) == "hello to ann"


def test_a_function_as_a_route(names: dict[str, Any]) -> None:
    exec(BLOCKS[1], names)
    with inline_worker(names["shop"]):
        jobs = [names["invoice"].delay(customer=who, cents=1) for who in ("acme", "corner shop")]
    assert [job.queue for job in jobs] == ["large-customers", "invoices"]


def test_a_job_without_its_code(names: dict[str, Any], worker: InlineWorker) -> None:
    exec(BLOCKS[2], names)
    job = names["job"]
    assert (job.task, job.queue, job.state()) == ("warehouse.pack", "default", "ready")
    names["app"].task(name="warehouse.pack")(lambda order, express: [order, express])
    worker.run_all()
    assert job.result(timeout=0) == [4711, True]


def test_a_renamed_task(names: dict[str, Any], worker: InlineWorker) -> None:
    before = names["app"].send("shop.charge", [1])
    exec(BLOCKS[3], names)
    after = names["capture"].delay(2)
    assert after.task == "shop.capture"
    worker.run_all()
    assert [before.result(timeout=0), after.result(timeout=0)] == [1, 2]
