"""The examples of the page on middleware do what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from tenure.events import EventName
from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import loaded, text

PAGE = "middleware.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return loaded(PAGE)


@pytest.fixture
def worker(page: dict[str, Any]) -> Iterator[InlineWorker]:
    with inline_worker(page["app"]) as worker:
        yield worker


def test_every_job_is_timed(page: dict[str, Any], worker: InlineWorker) -> None:
    packed, fetched = page["pack"].delay(7), page["fetch"].delay("four")
    worker.run_all()
    assert (packed.result(timeout=5), fetched.result(timeout=5)) == ("order 7 is packed", 4)
    assert set(page["took"]) == {"shop.pack", "shop.fetch"}


def test_an_error_is_tagged(page: dict[str, Any], worker: InlineWorker) -> None:
    def breaks() -> None:
        raise ConnectionError("cut")

    page["app"].task(name="shop.breaks", max_attempts=1)(breaks).delay()
    with pytest.raises(ConnectionError) as caught:
        worker.run_all()
    assert caught.value.__notes__ == ["attempt 1 of shop.breaks"]


def test_a_request_is_traced_into_its_job(page: dict[str, Any], worker: InlineWorker) -> None:
    token = page["request_id"].set("r-1")
    traced = page["which"].delay()
    page["request_id"].reset(token)
    untraced = page["which"].delay()
    worker.run_all()
    assert (traced.result(timeout=5), untraced.result(timeout=5)) == ("r-1", "none")


def test_a_tenant_is_carried(page: dict[str, Any], worker: InlineWorker) -> None:
    token = page["tenant"].set("acme")
    of_acme = page["greet"].delay("ann")
    page["tenant"].reset(token)
    of_nobody = page["greet"].delay("bob")
    worker.run_all()
    assert (of_acme.result(timeout=5), of_nobody.result(timeout=5)) == ("ann of acme", "bob of nobody")


def test_a_dead_job_is_told_of(page: dict[str, Any], worker: InlineWorker) -> None:
    def breaks() -> None:
        raise ValueError("no")

    page["app"].task(name="shop.broken", max_attempts=1)(breaks).delay()
    worker.run_all(raise_errors=False)
    assert page["dead"][-1] == "shop.broken gave up after 1 attempt: ValueError: no"


def test_its_table_has_every_event() -> None:
    rows = re.findall(r"^\| (`[a-z]+\..*?) \|", text(PAGE), re.MULTILINE)
    assert sorted(re.findall(r"`([a-z.]+)`", " ".join(rows))) == sorted(get_args(EventName))
