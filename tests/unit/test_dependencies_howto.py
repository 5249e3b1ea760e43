"""The examples of the page on dependencies do what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenure.testing import InlineWorker, inline_worker
from tests.stage.pages import loaded


@pytest.fixture
def page() -> dict[str, Any]:
    return loaded("dependencies.md")


@pytest.fixture
def worker(page: dict[str, Any]) -> Iterator[InlineWorker]:
    with inline_worker(page["app"]) as worker:
        yield worker


def test_a_session_is_committed_or_rolled_back(page: dict[str, Any], worker: InlineWorker) -> None:
    booked = page["book"].delay(7)
    worker.run_all()
    assert booked.result(timeout=5) == 1
    page["book"].fn.__globals__["len"] = lambda rows: 1 / 0
    page["book"].options(max_attempts=1).delay(8)
    with pytest.raises(ZeroDivisionError):
        worker.run_all()
    assert [session.state for session in page["sessions"]] == ["committed", "rolled back"]
    with pytest.raises(TypeError, match="which a worker fills"):
        page["book"].delay(7, session=page["Session"]())


def test_a_pool_is_the_processs(page: dict[str, Any]) -> None:
    with inline_worker(page["app"]) as worker:
        jobs = [page["ship"].delay(n) for n in range(3)]
        worker.run_all()
        assert [job.result(timeout=5) for job in jobs] == [1, 2, 3]
        assert page["opened"] == ["pool"]
    assert page["opened"] == []


def test_two_share_a_session(page: dict[str, Any], worker: InlineWorker) -> None:
    job = page["refund"].delay(7)
    worker.run_all()
    assert job.result(timeout=5) == ["shop.refund attempt 1", "refund of order 7"]
    assert len(page["sessions"]) == 1


def test_a_coroutine_has_its_client(page: dict[str, Any], worker: InlineWorker) -> None:
    job = page["fetch"].delay("here")
    worker.run_all()
    assert job.result(timeout=5) == "here by client"


def test_a_direct_call_gives_it(page: dict[str, Any]) -> None:
    assert page["book"](7, session=page["Session"]()) == 1
    with pytest.raises(TypeError, match="pass it by name"):
        page["book"](7)
