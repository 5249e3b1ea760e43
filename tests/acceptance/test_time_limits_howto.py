"""The examples of docs/howto/time-limits.md do what the page says."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tenure import JobCancelled, JobContext, JobFailed
from tenure.cli.jobs import cancel
from tenure.cli.worker import worker as worker_command
from tenure.config import LIMITS
from tenure.context import TestHold
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.worker import Worker
from tests.stage.harness import wait_for
from tests.stage.pages import blocks, loaded, text

PAGE = "time-limits.md"
LIMIT = 0.2


@pytest.fixture
def page() -> Iterator[Any]:
    """All code of the page as one module, with a worker of two threads that runs its jobs in this process."""
    names = loaded(PAGE)
    app = names["app"]
    app.use_broker(f"memory://{uuid4().hex}")
    worker = Worker(app, threads=2, grace=5.0)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield SimpleNamespace(**names)
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    app.close()


def dead(job: Any) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=20)
    assert caught.value.kind == "tenure.errors.TimeLimitExceeded"
    return caught.value


def test_each_attempt_has_its_limit_and_a_call_may_have_its_own(page: Any) -> None:
    assert page.report.delay("2026-11").result(timeout=10) == "2026-11.pdf"
    late = dead(page.report.options(timeout=LIMIT, max_attempts=1).delay("2026-11", 60))
    assert late.reason == "gave up after 1 attempt: timeout: it ran longer than its time limit of 0.2 s"
    assert page.app.job(page.order_yearly_report(2026)).result(timeout=10) == "2026.pdf"
    limit = LIMITS["timeout"]
    assert (limit.least, limit.most) == (0.05, 7 * 86_400)


def test_what_is_never_tried_again(page: Any) -> None:
    late = dead(page.convert.options(timeout=LIMIT).delay(6000, 0.01))
    assert late.reason.startswith("not to be tried again (it is in give_up_on): timeout: ")


def test_a_task_cleans_up(page: Any) -> None:
    late = page.upload.options(timeout=LIMIT).delay("photo.jpg", LIMIT + 0.2)
    dead(late)
    assert page.unfinished == ["photo.jpg"]


def test_a_task_stops_at_a_safe_place(page: Any) -> None:
    hurried = JobContext.for_test(hold=TestHold(time_limit=1.0))
    assert page.index.fn(hurried, 10, 3) == 3
    assert page.index.fn(JobContext.for_test(), 10, 3) == 10
    assert page.index.delay(5).result(timeout=10) == 5


def test_a_job_is_ended_by_hand(page: Any) -> None:
    running = page.report.delay("2026-11", 60)
    wait_for(lambda: running.state() == "running", 10, "it runs")
    assert page.stop(running.id) == "asked"
    with pytest.raises(JobCancelled, match="terminated"):
        running.result(timeout=10)
    assert page.stop(running.id) == "already cancelled"


def test_its_figures_and_commands_are_those_of_the_code() -> None:
    assert OVERRUN_AFTER == 0.5
    assert "half a second later" in text(PAGE)
    ((line,),) = (code.splitlines() for code in blocks(PAGE, "console"))
    known = {option for parameter in worker_command.params for option in parameter.opts}
    assert {word for word in shlex.split(line) if word.startswith("-")} <= known
    assert "--terminate" in {option for parameter in cancel.params for option in parameter.opts}
