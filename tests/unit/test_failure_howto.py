"""The examples of the page on failures do what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tenure.cli.jobs import dead
from tenure.settle import GAVE_UP
from tenure.testing import inline_worker
from tests.stage import pages

PAGE = "failures-and-retries.md"
COMMAND = re.compile(r"^\$ tenure dead (\w+)", re.MULTILINE)


class Page(pages.Page):
    """All code of the page as one module, with a worker that runs its jobs."""

    def ended(self, id: str) -> dict[str, Any]:
        self.worker.run_all(raise_errors=False)
        found = self.worker.broker.admin().job(id)
        assert found is not None
        return found


@pytest.fixture
def page() -> Iterator[Page]:
    names = pages.loaded(PAGE)
    with inline_worker(names["app"]) as worker:
        yield Page(names, worker)


def pauses(job: dict[str, Any]) -> list[float]:
    return [(later["begin_at"] - one["end_at"]) / 1000 for one, later in pairwise(job["handouts"])]


def test_how_often_and_how_long(page: Page) -> None:
    job = page.ended(page.charge.delay(1, -5).id)
    assert (job["state"], job["attempts"]) == ("dead", 5)
    assert job["reason"] == f"{GAVE_UP} 5 attempts: ValueError: cannot charge -5 cents"
    for pause, whole in zip(pauses(job), (10, 30, 90, 270), strict=True):
        assert whole / 2 - 0.01 <= pause <= whole + 0.01


def test_which_errors_are_worth_another_try(page: Page) -> None:
    assert page.ended(page.mail.delay("a@b").id)["attempts"] == 20
    job = page.ended(page.mail.delay("nobody").id)
    assert (job["state"], job["attempts"]) == ("dead", 1)
    assert job["reason"].startswith("not to be tried again (it is not in retry_on): ValueError: 'nobody'")


def test_what_is_said_from_inside(page: Page) -> None:
    ends = {}
    for state in ("carrier busy", "no such order", "cancelled by the customer", "packed"):
        job = page.ended(page.deliver.delay(7, state).id)
        ends[state] = (job["state"], job["attempts"], job["reason"])
    assert ends == {
        "carrier busy": ("dead", 10, f"{GAVE_UP} 10 attempts: the carrier is busy"),
        "no such order": ("dead", 1, "there is no order 7"),
        "cancelled by the customer": ("cancelled", 1, "the customer has cancelled it"),
        "packed": ("done", 1, None),
    }
    waiting = page.ended(page.deliver.delay(7, "not packed").id)
    assert (waiting["state"], waiting["attempts"], waiting["losses"]) == ("scheduled", 0, 0)


def test_a_service_that_names_its_pause(page: Page) -> None:
    job = page.ended(page.ask_the_bank.delay("x").id)
    assert job["attempts"] == 20
    assert all(120 <= pause <= 132.01 for pause in pauses(job))


def test_hooks_are_called_once_the_tasks_own_first(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    id = page.refund.delay(7).id
    assert page.ended(id)["state"] == "dead"
    assert capsys.readouterr().out.splitlines() == [
        "order 7 could not be refunded: the account is closed",
        f"shop.refund {id} is dead: {GAVE_UP} 1 attempt: RuntimeError: the account is closed",
    ]


def test_the_commands_are_there() -> None:
    named = COMMAND.findall(pages.text(PAGE))
    assert set(named) == set(dead.commands)
