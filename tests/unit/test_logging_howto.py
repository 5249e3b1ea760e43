"""The examples of the page on logging do what the page says."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tenure.cli.worker import worker as worker_command
from tenure.job_log import OF_JOB, name_jobs
from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import blocks, loaded, text

PAGE = "logging.md"


@pytest.fixture
def page() -> Iterator[dict[str, Any]]:
    """The page's code as one module, in a process that names jobs as a worker does."""
    factory, shop = logging.getLogRecordFactory(), logging.getLogger("shop")
    names = loaded(PAGE)
    name_jobs()
    yield names
    logging.setLogRecordFactory(factory)
    shop.removeHandler(names["handler"])
    structlog.reset_defaults()


@pytest.fixture
def worker(page: dict[str, Any]) -> Iterator[InlineWorker]:
    with inline_worker(page["app"]) as worker:
        yield worker


def test_lines_name_the_job(page: dict[str, Any], worker: InlineWorker, caplog: pytest.LogCaptureFixture) -> None:
    shown = io.StringIO()
    page["handler"].setStream(shown)
    job = page["pack"].delay(7)
    with caplog.at_level("INFO", "shop"):
        worker.run_all()
    (record,) = [record for record in caplog.records if record.name == "shop.orders"]
    assert page["form"].format(record) == f"INFO shop.orders [shop.pack {job.id[:8]}] order 7 is packed"
    line = json.loads(shown.getvalue())
    assert (line["message"], line["job_id"], line["attempt"]) == ("order 7 is packed", job.id, 1)


def test_the_form_does_where_no_worker_is(page: dict[str, Any]) -> None:
    record = logging.makeLogRecord({"levelname": "INFO", "name": "shop", "msg": "added"})
    for name in OF_JOB:
        record.__dict__.pop(name, None)
    assert page["form"].format(record) == "INFO shop [- -] added"


def test_structlog_names_the_job(
    page: dict[str, Any], worker: InlineWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    job = page["send"].delay(7)
    worker.run_all()
    event = json.loads(capsys.readouterr().out)
    assert event == {
        "attempt": 1, "event": "sent", "job_id": job.id, "job_key": job.id, "order": 7, "task": "shop.send",
    }  # fmt: skip


def test_its_table_and_its_command_are_what_there_is() -> None:
    table = re.findall(r"^\| `(\w+)` \|.*\| `(.*)` \|$", text(PAGE), re.MULTILINE)
    assert table == [(name, repr(value).replace("'", '"')) for name, value in OF_JOB.items()]
    (line,) = blocks(PAGE, "console")
    known = {option for parameter in worker_command.params for option in parameter.opts}
    assert {word for word in shlex.split(line) if word.startswith("-")} <= known
