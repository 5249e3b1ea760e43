"""What a task may know about the job that runs."""

from __future__ import annotations

import contextvars

import pytest

from tenure import JobContext, NotInJob, TenureError, current_job
from tenure.context import TestHold, enter, leave


class Lease(TestHold):
    """A deadline and a clock that tests move."""

    now = 100.0
    until: float | None = 130.0

    def deadline(self) -> float | None:
        return self.until

    def context(self) -> JobContext:
        return JobContext("id", "key", "billing", "shop.charge", 2, 3, 1, self, lambda: self.now)


def test_inside_of_a_job() -> None:
    lease = Lease()
    token = enter(lease.context())
    try:
        seen = (current_job.id, current_job.key, current_job.queue, current_job.task)
        assert seen == ("id", "key", "billing", "shop.charge")
        assert (current_job.attempt, current_job.fence, current_job.losses) == (2, 3, 1)
        assert current_job.deadline == 130.0
        assert bool(current_job)
        assert repr(current_job) == "<current_job id of shop.charge>"
    finally:
        leave(token)
    assert not current_job


def test_the_lease_is_lost_when_its_deadline_has_passed_or_it_was_taken() -> None:
    lease = Lease()
    context = lease.context()
    steps: list[tuple[float, float | None, bool]] = [
        (129.9, 130.0, False),
        (130.0, 130.0, True),
        (130.0, 160.0, False),  # extended
        (130.0, None, True),
    ]
    for lease.now, lease.until, lost in steps:
        assert context.lease_lost is lost
        assert context.deadline == lease.until


@pytest.mark.parametrize("name", ["id", "key", "queue", "task", "attempt", "fence", "losses", "deadline", "lease_lost"])
def test_outside_of_a_job_it_says_so(name: str) -> None:
    with pytest.raises(NotInJob, match="outside of a job") as caught:
        getattr(current_job, name)
    assert isinstance(caught.value, TenureError)
    assert isinstance(caught.value, RuntimeError)
    assert repr(current_job) == "<current_job: none runs here>"


def test_each_thread_has_its_own() -> None:
    seen: list[bool] = []
    token = enter(Lease().context())
    try:
        # A new thread begins with an empty context of its own; the same is run here without one.
        contextvars.Context().run(lambda: seen.append(bool(current_job)))
        assert seen == [False]
        assert bool(current_job)
    finally:
        leave(token)
