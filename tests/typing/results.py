"""How results are typed: mypy and pyright read this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal, assert_type

from tenure import App, Job, as_completed

app = App("shop")


@app.task
def price(item: str) -> int:
    return len(item)


@app.task
async def fetch(url: str) -> bytes:
    return url.encode()


def uses() -> None:
    job = price.delay("bolts")
    assert_type(job.result(), int)
    assert_type(job.result(timeout=timedelta(seconds=1)), int)
    assert_type(job.wait(1.5), Literal["scheduled", "ready", "running", "done", "dead", "cancelled"])
    assert_type(job.state() == "done", bool)
    assert_type(as_completed([job, job], timeout=3), Iterator[Job[int]])
    assert_type(app.job(job.id), Job[Any])
    assert_type(app.job(job.id, price).result(), int)
    assert_type(fetch.delay("https://example.org").result(), bytes)


async def awaits() -> None:
    assert_type(await price.delay("bolts").aresult(timeout=2), int)
