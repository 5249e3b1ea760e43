"""The examples of the page on values do what the page says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from tenure import App, ResultNotStored
from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import blocks

PAGE = "values.md"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], InlineWorker]]:
    module = ModuleType("shop")  # a dataclass looks for the module that it is defined in
    monkeypatch.setitem(sys.modules, "shop", module)
    names = vars(module)
    first, *rest = blocks(PAGE)
    setup, call = first.split("\ninvoice.delay")
    exec(compile(setup, PAGE, "exec"), names)
    with inline_worker(names["app"]) as worker:
        for code in ("invoice.delay" + call, *rest):
            exec(compile(code, PAGE, "exec"), names)
        yield names, worker


def test_all_calls_of_the_page_run(page: tuple[dict[str, Any], InlineWorker]) -> None:
    names, worker = page
    added = worker.added()
    worker.run_all()
    assert [call.task for call in added] == [f"shop.{name}" for name in ("invoice", "total", "paint", "note", "legacy")]
    assert {names["app"].job(call.id).state() for call in added} == {"done"}


def test_objects_come_back(page: tuple[dict[str, Any], InlineWorker]) -> None:
    names, worker = page
    pen = names["Item"]("pen", Decimal("1.10"))
    job = names["total"].delay([names["Order"](1, [pen])])
    paint = names["paint"].delay(names["Color"].RED)
    worker.run_all()
    assert job.result() == {"pen": pen}
    assert paint.result() is names["Color"].RED


def test_a_result_that_cannot_be_kept(page: tuple[dict[str, Any], InlineWorker]) -> None:
    names, worker = page
    job = names["measure"].delay()
    worker.run_all()
    assert job.state() == "done"
    with pytest.raises(ResultNotStored, match="lock"):
        job.result()


def test_the_app_with_compression(page: tuple[dict[str, Any], InlineWorker]) -> None:
    app: App = page[0]["bulk"]
    assert app.settings.compress_over == 16_384
