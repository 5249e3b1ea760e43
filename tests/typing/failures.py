"""How a user's options and hooks for failures are typed: mypy and pyright read this file, nothing runs it."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from tenure import App, Backoff, Dead, DeadJob, Discard, Failure, Job, Retry, Snooze

app = App("shop")


def hook(job: DeadJob, error: Failure) -> None:
    assert_type(job.attempt, int)
    assert_type(error.notes, tuple[str, ...])


@app.on_dead
def for_all(job: DeadJob, error: Failure) -> str:
    return f"{job.id} {error.kind}"


@app.task(retry_on=(OSError, TimeoutError), give_up_on=ConnectionRefusedError, on_dead=hook)
def mail(address: str) -> str:
    match address:
        case "busy":
            raise Retry(delay=timedelta(minutes=1), reason="busy")
        case "later":
            raise Snooze(60)
        case "gone":
            raise Dead("gone")
        case "bad":
            raise Discard("bad")
    return address


@app.task(retry_on=[OSError], backoff=Backoff(base=1, cap=None, jitter=False), on_dead=None)
def push(address: str) -> int:
    return len(address)


def uses(job: DeadJob, error: Failure) -> None:
    assert_type(mail.delay("a"), Job[str])
    assert_type(push.delay("a"), Job[int])
    assert_type(for_all(job, error), str)
