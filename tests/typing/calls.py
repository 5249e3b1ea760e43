"""How a user's calls are typed: mypy and pyright read this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from tenure import AddError, App, Backoff, Depends, Event, Job, JobContext, Signature, Task, TaskGroup, current_job
from tenure.broker import Added
from tenure.message import Message
from tenure.middleware import CallNext, PublishNext

app = App("shop", include=["shop.mail"])


@app.task
def charge(order_id: int, cents: int = 0, *, note: str = "") -> str:
    return f"{order_id}{cents}{note}"


@app.task(queue="billing", key=lambda order_id: f"order:{order_id}", max_attempts=5, backoff=Backoff(base=2))
def invoice(order_id: int) -> bytes:
    return bytes(order_id)


@app.task
def export(ctx: JobContext, table: str, rows: int = 0) -> int:
    ctx.progress(1, rows, table)
    return rows


@app.task(queue="web", results=False)
async def fetch(ctx: JobContext, url: str) -> bytes:
    return url.encode()


@app.task
async def head(url: str) -> int:
    return len(url)


@app.task
def anything(value: object, *, twice: bool = False) -> str:
    return str(value)


@app.task(priority=3)
def many(*numbers: int, **words: str) -> int:
    return len(numbers) + len(words)


mail = TaskGroup("mail")
app.add_group(mail)


@mail.task
def deliver(to: str) -> int:
    return len(to)


@mail.task(aliases=["mail.old"])
async def collect(ctx: JobContext, box: int) -> list[str]:
    return [str(box)]


def open_box() -> Iterator[list[str]]:
    yield []


@app.task
def sort(box: int, letters: list[str] = Depends(open_box, per="process")) -> int:
    return box + len(letters)


@app.middleware
def around(context: JobContext, call_next: CallNext) -> object:
    return call_next()


@app.middleware
async def around_too(context: JobContext, call_next: CallNext) -> object:
    return await call_next()


@app.publish_middleware
def adding(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
    return call_next([message.with_headers(by="me") for message in messages])


@app.on("job.done", "lease.lost")
def watches(event: Event) -> None: ...


tenant = app.carry(ContextVar[str]("tenant"))


@app.on_worker_start
def begin() -> None: ...


@app.on_worker_stop
async def end() -> None: ...


def uses() -> None:
    assert_type(charge(42, 999), str)
    assert_type(charge.delay(42, 999, note="fast"), Job[str])
    assert_type(deliver.delay("ann"), Job[int])
    assert_type(collect.delay(3).result(), list[str])
    assert_type(app.send("elsewhere.task", [1], {"b": 2}, priority=3), Job[Any])
    assert_type(charge.s(42), Signature[str])
    assert_type(charge.s(42).delay(), Job[str])
    assert_type(charge.s(42).options(queue="billing"), Signature[str])
    assert_type(charge.options(delay=timedelta(minutes=1), priority=8).delay(42, 999), Job[str])
    assert_type(charge.options(run_at=datetime(2030, 1, 1, tzinfo=UTC), expires=60).s(42), Signature[str])
    assert_type(invoice.delay(order_id=42), Job[bytes])
    assert_type(app.add_many([charge.s(1), charge.s(2)]), list[Job[str] | AddError])
    mixed: list[Job[object] | AddError] = app.add_many([charge.s(1), invoice.s(2)])
    assert len(mixed) == 2
    assert_type(current_job.attempt, int)
    assert_type(export.delay("orders", rows=3), Job[int])
    assert_type(export.s("orders"), Signature[int])
    assert_type(export.options(priority=1).delay("orders"), Job[int])
    assert_type(export(JobContext.for_test(), "orders"), int)
    assert_type(fetch.delay("https://example.org"), Job[bytes])
    assert_type(anything.delay(3, twice=True), Job[str])
    assert_type(many.delay(1, 2, word="x"), Job[int])
    assert_type(app.worker(async_slots=5).run().done, int)
    assert_type(begin(), None)
    assert_type(sort.delay(3), Job[int])
    assert_type(tenant.get(), str)


async def awaits(context: JobContext) -> None:
    assert_type(await charge.adelay(42), Job[str])
    assert_type(await charge.s(42).adelay(), Job[str])
    assert_type(await fetch.options(queue="slow").adelay("https://example.org"), Job[bytes])
    assert_type(await head("https://example.org"), int)
    assert_type(await fetch(context, "https://example.org"), bytes)
    coroutine: Coroutine[Any, Any, int] = head("https://example.org")
    await coroutine
    assert_type(context.deadline, float | None)
    context.log.info("so far")


def gives(task: Task[[int], bytes]) -> Job[bytes]:
    return task.delay(1)


def gives_too(task: Task[[str], bytes]) -> Job[bytes]:
    return task.delay("https://example.org")


gives(invoice)
gives_too(fetch)
