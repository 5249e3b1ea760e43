"""How a user's calls are typed: mypy and pyright read this file, nothing runs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

from tenure import AddError, App, Backoff, Job, Signature, Task, current_job

app = App("shop", include=["shop.mail"])


@app.task
def charge(order_id: int, cents: int = 0, *, note: str = "") -> str:
    return f"{order_id}{cents}{note}"


@app.task(queue="billing", key=lambda order_id: f"order:{order_id}", max_attempts=5, backoff=Backoff(base=2))
def invoice(order_id: int) -> bytes:
    return bytes(order_id)


def uses() -> None:
    assert_type(charge(42, 999), str)
    assert_type(charge.delay(42, 999, note="fast"), Job[str])
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


def gives(task: Task[[int], bytes]) -> Job[bytes]:
    return task.delay(1)


gives(invoice)
