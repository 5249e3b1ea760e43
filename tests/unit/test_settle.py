from __future__ import annotations

import pytest

from tenure.codec import pack_failure
from tenure.message import Raw
from tenure.outcome import Broken, Failed, Failure, Newer, Returned, UnknownTask
from tenure.retry import Backoff
from tenure.settle import MAX_REASON_CHARS, Policy, decide
from tests.unit.worker_fakes import delivery, receipt

FAILURE = Failure("ValueError", "no such order", "the frames")


def test_a_return_is_done_with_its_result() -> None:
    settlement = decide(Returned(b"\x01"), delivery(), Policy(), 0.0, 0.0)
    assert (settlement.kind, settlement.result, settlement.receipt) == ("done", b"\x01", receipt())


def test_a_return_without_a_result_is_done_without_a_body() -> None:
    assert decide(Returned(), delivery(), Policy(), 0.0, 0.0).result is None


def test_a_failure_is_retried_after_its_backoff_with_the_failure_kept() -> None:
    policy = Policy(20, Backoff(2.0, 2.0, 100.0))
    settlement = decide(Failed(FAILURE), delivery(attempt=3), policy, 0.0, 1.0)
    assert (settlement.kind, settlement.delay) == ("retry", 8.0)
    assert settlement.reason == "ValueError: no such order"
    assert settlement.error == pack_failure(FAILURE)


def test_the_same_roll_gives_the_same_delay() -> None:
    first, second = (decide(Failed(FAILURE), delivery(), Policy(), 0.0, 0.3) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("attempt", "limit", "kind"), [(19, 20, "retry"), (20, 20, "dead"), (21, 20, "dead")])
def test_the_last_attempt_ends_dead(attempt: int, limit: int, kind: str) -> None:
    assert decide(Failed(FAILURE), delivery(attempt=attempt), Policy(limit), 0.0, 0.0).kind == kind


def test_a_dead_job_says_after_how_many_attempts_and_why() -> None:
    settlement = decide(Failed(FAILURE), delivery(attempt=20), Policy(20), 0.0, 0.0)
    assert settlement.reason == "gave up after 20 attempts: ValueError: no such order"
    only = decide(Failed(Failure("KeyError", "")), delivery(), Policy(1), 0.0, 0.0)
    assert only.reason == "gave up after 1 attempt: KeyError"


def test_a_reason_is_bounded() -> None:
    settlement = decide(Failed(Failure("E", "x" * 4000)), delivery(), Policy(), 0.0, 0.0)
    assert len(settlement.reason) == MAX_REASON_CHARS
    assert settlement.reason.endswith("...")


@pytest.mark.parametrize(("number", "delay"), [(1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (5000, 60.0)])
def test_an_unknown_task_is_released_for_longer_each_time(number: int, delay: float) -> None:
    settlement = decide(UnknownTask("shop.new"), delivery(number=number), Policy(), 0.0, 0.0)
    assert (settlement.kind, settlement.delay) == ("release", delay)
    assert "shop.new" in settlement.reason


def test_a_newer_message_is_released() -> None:
    settlement = decide(Newer(9), delivery(), Policy(), 0.0, 0.0)
    assert (settlement.kind, settlement.delay) == ("release", 1.0)


def test_bytes_that_can_never_run_are_dead_and_say_why() -> None:
    raw = Raw("0" * 32, "default", "shop.charge", b"\xff", "the checksum is wrong")
    settlement = decide(Broken(raw.why), delivery(message=raw), Policy(), 0.0, 0.0)
    assert (settlement.kind, settlement.reason) == ("dead", "the checksum is wrong")
