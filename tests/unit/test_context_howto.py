"""The examples of the pages on coroutines and on the job's context do what the pages say."""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator

import pytest

from tenure import JobContext
from tenure.cli.worker import worker as worker_command
from tenure.testing import inline_worker
from tenure.worker.process_hooks import run_start_hooks, run_stop_hooks
from tests.stage.pages import HOWTO, Page, blocks, loaded, text


@pytest.fixture(params=["async-tasks.md", "job-context.md"])
def name(request: pytest.FixtureRequest) -> str:
    page: str = request.param
    return page


@pytest.fixture
def async_page() -> Iterator[Page]:
    names = loaded("async-tasks.md")
    with inline_worker(names["app"]) as worker:
        yield Page(names, worker)


@pytest.fixture
def context_page() -> Iterator[Page]:
    names = loaded("job-context.md")
    with inline_worker(names["app"]) as worker:
        yield Page(names, worker)


def test_coroutines_run_and_add_jobs(async_page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    refreshed = async_page.refresh.delay(["a", "bb"])
    async_page.worker.run_all()
    assert len(refreshed.result(timeout=5)) == 2
    first = asyncio.run(async_page.checkout(7))
    assert asyncio.run(async_page.checkout(7)) == first
    crawled = async_page.crawl.delay(["a", "b"])
    async_page.worker.run_all()
    assert crawled.result(timeout=5) == 2
    assert "order 7: charged 999 cents" in capsys.readouterr().out
    assert asyncio.run(async_page.fetch("four")) == 4


def test_its_hooks(async_page: Page) -> None:
    from tenure.worker.loop import Loop

    loop = Loop()
    loop.start()
    run_start_hooks(async_page.app.start_hooks, loop)
    assert len(async_page.clients) == 1
    run_stop_hooks(async_page.app.stop_hooks, loop)
    assert async_page.clients == []
    loop.stop()


def test_its_command_has_options_that_there_are() -> None:
    ((line,),) = (block.splitlines() for block in blocks("async-tasks.md", "console"))
    known = {option for parameter in worker_command.params for option in parameter.opts}
    assert {word for word in shlex.split(line) if word.startswith("-")} <= known


def test_what_tasks_do_with_their_context(context_page: Page, caplog: pytest.LogCaptureFixture) -> None:
    page = context_page
    exported, imported = page.export.delay("orders", 5), page.import_rows.delay(3)
    indexed, priced = page.reindex.delay(5), page.set_price.delay("bolt", 30)
    page.ship.delay(7)
    with caplog.at_level("INFO", "tenure.job"):
        page.worker.run_all()
    assert (exported.result(timeout=5), imported.result(timeout=5)) == ("orders-1.csv", 3)
    assert (indexed.result(timeout=5), priced.result(timeout=5)) == (5, True)
    assert page.stored == {"bolt": (1, 30)}
    assert re.search(r"shop\.ship [0-9a-f]{32} attempt 1: order 7 is packed", caplog.text)
    assert page.audit("changed") == "changed"


def test_the_table_names_all_there_is() -> None:
    table = "".join(line.split("|")[1] for line in text("job-context.md").splitlines() if line.startswith("|"))
    public = {name for name, _ in inspect.getmembers(JobContext) if not name.startswith("_")}
    fields = set(re.findall(r"`(\w+)[`(]", table))
    assert fields == public - {"for_test", "hold", "boot_clock"}


def test_links_and_anchors_lead_somewhere(name: str) -> None:
    page = text(name)
    slugs = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        path, _, anchor = target.partition("#")
        assert not path or (HOWTO / path).exists()
        assert path or anchor in slugs
