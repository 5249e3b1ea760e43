"""What a task may know about the job that runs."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest

from tenure import JobContext, NotInJob, TenureError, current_job
from tenure.codec import pack_value
from tenure.context import (
    MAX_PROGRESS_BYTES,
    Progress,
    TestHold,
    enter,
    leave,
    pack_progress,
    unpack_progress,
    would_deadlock,
)


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


# ----------------------------------------------------------------------------------------------- what it may ask for


def test_progress_is_packed_and_read_back() -> None:
    hold = TestHold()
    context = JobContext.for_test(hold=hold)
    context.progress(1)
    context.progress(0.5, 2, "half of it")
    assert hold.said == [Progress(1), Progress(0.5, 2, "half of it")]


@pytest.mark.parametrize(
    "note", ["x" * 10_000, "\N{SNOWMAN}" * 500, "\N{PILE OF POO}" * 500, "\x00" * 300, "a\udc80b" * 99]
)
def test_a_long_note_is_cut_within_the_limit(note: str) -> None:
    packed = pack_progress(Progress(2**63 - 1, -(2**63) + 1, note))
    assert 180 <= len(packed) <= MAX_PROGRESS_BYTES
    read = unpack_progress(packed)
    assert read is not None
    assert note.encode("utf-8", "replace").decode().startswith(read.note)


@pytest.mark.parametrize(
    ("done", "total", "error"),
    [
        ("1", None, TypeError), (True, None, TypeError), (None, None, TypeError), (1, "2", TypeError),
        (float("nan"), None, ValueError), (1, float("inf"), ValueError), (2**63, None, ValueError),
    ],
)  # fmt: skip
def test_a_progress_that_is_no_number_is_refused(done: Any, total: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"progress\((done|total)="):
        JobContext.for_test().progress(done, total)
    with pytest.raises(TypeError, match="note=3"):
        JobContext.for_test().progress(1, None, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("packed", [b"", b"\xc1", pack_value(3), pack_value([1]), pack_value({"a": 1})])
def test_bytes_that_are_no_progress_are_none(packed: bytes) -> None:
    assert unpack_progress(packed) is None


def test_current_job_is_the_contexts_face() -> None:
    hold = TestHold(is_stopping=True)
    token = enter(JobContext.for_test(hold=hold))
    try:
        current_job.progress(1, 2, "n")
        current_job.extend()
        assert (current_job.stopping, current_job.cancelled) == (True, False)
        assert (hold.said, hold.extended) == ([Progress(1, 2, "n")], 1)
        hold.is_cancelled, hold.lease_lost = True, True
        assert (current_job.cancelled, current_job.lease_lost, current_job.deadline) == (True, True, None)
    finally:
        leave(token)


def test_its_logger_names_the_job_and_the_callers_line(caplog: pytest.LogCaptureFixture) -> None:
    context = JobContext.for_test(id="7", key="k", task="shop.50%", attempt=2)
    with caplog.at_level("INFO", "tenure.job"):
        context.log.info("charged %d%%", 3, extra={"order": 9})
        context.log.warning("100% sure")
        context.log.debug("not wanted")
    first, second = caplog.records
    assert first.getMessage() == "shop.50% 7 attempt 2: charged 3%"
    assert second.getMessage() == "shop.50% 7 attempt 2: 100% sure"
    assert first.filename == "test_context.py"
    assert (first.__dict__["job_id"], first.__dict__["job_key"], first.__dict__["order"]) == ("7", "k", 9)


def test_waiting_may_be_for_ever_only_inside_of_a_job_without_a_free_slot() -> None:
    assert not would_deadlock()
    for idle in (True, False):
        token = enter(JobContext.for_test(hold=TestHold(is_idle=idle)))
        try:
            assert would_deadlock("shop.charge") is not idle
        finally:
            leave(token)
