"""From an exception to an outcome, and from an outcome to a settlement."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from datetime import timedelta
from typing import Any

import pytest

from tenure import Backoff, Dead, Discard, Retry, Snooze
from tenure.codec import pack_failure, unpack_failure
from tenure.errors import JobControl
from tenure.message import Raw, Settlement
from tenure.outcome import Broken, Died, Discarded, Failed, Failure, Newer, Retried, Returned, Snoozed, UnknownTask
from tenure.settle import MAX_REASON_CHARS, Policy, decide, outcome_of
from tests.unit.worker_fakes import delivery, receipt

FAILURE = Failure("ValueError", "no such order", "the frames")


class NoCard(ValueError):
    pass


class Turned(Exception):
    """Turned away by a service."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__("too many requests")
        self.retry_after = retry_after


class Liar(ConnectionError):
    """Says that it is of another class, and raises when it is asked for more."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return ValueError

    @property
    def retry_after(self) -> float:
        raise SystemExit


def settled(error: BaseException, policy: Policy | None = None, attempt: int = 1, roll: float = 1.0) -> Settlement:
    policy = policy or Policy()
    return decide(outcome_of(error, policy), delivery(attempt=attempt), policy, 0.0, roll)


def kind_and_text(settlement: Settlement) -> tuple[str, str]:
    failure = unpack_failure(settlement.error)
    return failure.kind, failure.text


# ---------------------------------------------------------------------------------- an outcome's settlement


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


def test_ten_thousand_that_fail_in_one_second_come_back_spread_out() -> None:
    rolls = random.Random(7)
    policy = Policy()
    delays = [decide(Failed(FAILURE), delivery(attempt=8), policy, 0.0, rolls.random()).delay for _ in range(10_000)]
    assert 64.0 <= min(delays) <= max(delays) <= 128.0
    in_each_second = [sum(1 for delay in delays if int(delay) == second) for second in range(64, 128)]
    assert max(in_each_second) < 2 * 10_000 / 64
    assert min(in_each_second) > 10_000 / 64 / 2


@pytest.mark.parametrize(("attempt", "limit", "kind"), [(19, 20, "retry"), (20, 20, "dead"), (21, 20, "dead")])
def test_the_last_attempt_ends_dead(attempt: int, limit: int, kind: str) -> None:
    assert decide(Failed(FAILURE), delivery(attempt=attempt), Policy(limit), 0.0, 0.0).kind == kind


def test_a_dead_job_says_after_how_many_attempts_and_why() -> None:
    settlement = decide(Failed(FAILURE), delivery(attempt=20), Policy(20), 0.0, 0.0)
    assert settlement.reason == "gave up after 20 attempts: ValueError: no such order"
    only = decide(Failed(Failure("KeyError", "")), delivery(), Policy(1), 0.0, 0.0)
    assert only.reason == "gave up after 1 attempt: KeyError"


def test_a_reason_is_one_line_of_limited_length() -> None:
    settlement = decide(Failed(Failure("E", "x\n  y\t" * 4000)), delivery(), Policy(), 0.0, 0.0)
    assert len(settlement.reason) == MAX_REASON_CHARS
    assert settlement.reason.startswith("E: x y x y ")
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


# --------------------------------------------------------------------------------- what a task asks for by raising


@pytest.mark.parametrize(("delay", "seconds"), [(None, 4.0), (0, 0.0), (7, 7.0), (timedelta(hours=2), 7200.0)])
def test_retry_waits_as_asked_or_by_the_backoff(delay: Any, seconds: float) -> None:
    settlement = settled(Retry(delay, reason="the gateway is busy"), Policy(20, Backoff(2.0)), attempt=2)
    assert (settlement.kind, settlement.delay, settlement.reason) == ("retry", seconds, "the gateway is busy")
    assert kind_and_text(settlement)[0] == "tenure.errors.Retry"


def test_retry_is_an_attempt_and_the_last_one_is_dead() -> None:
    settlement = settled(Retry(5, reason="busy"), Policy(3), attempt=3)
    assert (settlement.kind, settlement.reason) == ("dead", "gave up after 3 attempts: busy")


def test_retry_on_and_give_up_on_do_not_ask_what_a_task_asks_for() -> None:
    policy = Policy(retry_on=(), give_up_on=(Exception,))
    assert settled(Retry(), policy).kind == "retry"
    assert settled(Snooze(1), policy).kind == "release"


def test_snooze_is_a_release_with_its_delay() -> None:
    settlement = settled(Snooze(90, "the shop is closed"), Policy(1))
    assert settlement == Settlement(receipt(), "release", delay=90.0, reason="the shop is closed")
    assert settled(Snooze(timedelta(minutes=2))).delay == 120.0


def test_dead_ends_it_whatever_attempts_are_left() -> None:
    error = Dead("no such customer")
    error.__cause__ = KeyError(7)
    settlement = settled(error)
    assert (settlement.kind, settlement.reason) == ("dead", "no such customer")
    assert [link[:3] for link in unpack_failure(settlement.error).chain] == [("cause", 1, "KeyError")]


def test_discard_is_cancelled_with_its_reason() -> None:
    assert settled(Discard("sold out")) == Settlement(receipt(), "cancel", reason="sold out")


@pytest.mark.parametrize(
    "error",
    [
        *(Retry(delay) for delay in (-1, math.nan, math.inf, "5", True, 10**400, 1e10)),  # type: ignore[arg-type]
        *(Snooze(seconds) for seconds in (-1, math.nan, None, "soon", timedelta(-1))),  # type: ignore[arg-type]
    ],
)
def test_an_unclear_time_is_a_failed_attempt_that_says_so(error: JobControl) -> None:
    settlement = settled(error, Policy(20, Backoff(2.0), retry_on=()))
    assert (settlement.kind, settlement.delay) == ("retry", 2.0)
    kind, text = kind_and_text(settlement)
    assert kind == "tenure.errors.ConfigError"
    assert "is not possible: give seconds from 0 to 3155760000" in text
    assert text.startswith("Retry(delay=" if isinstance(error, Retry) else "Snooze(seconds=")


class OwnControl(JobControl):
    pass


class HalfMade(Retry):
    def __init__(self) -> None:
        pass


class Reasonless(Dead):
    def __init__(self) -> None:
        Exception.__init__(self)

    @property
    def reason(self) -> str:  # type: ignore[override]
        raise RuntimeError


def test_classes_of_the_users_own() -> None:
    assert isinstance(outcome_of(OwnControl("x"), Policy()), Failed)
    assert isinstance(outcome_of(HalfMade(), Policy()), Retried)
    assert isinstance(outcome_of(Reasonless(), Policy()), Died)
    assert outcome_of(Discard(5), Policy()) == Discarded("5")  # type: ignore[arg-type]
    assert outcome_of(Snooze(1, "\ud800\0"), Policy()) == Snoozed(1.0, "\\ud800\\x00")


# ------------------------------------------------------------------------------------------- retry_on, give_up_on


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError("x"), "retry"), (TimeoutError("x"), "retry"), (NoCard("x"), "dead"),
        (KeyError("x"), "dead"), (SystemExit(1), "dead"), (Liar("x"), "retry"),
    ],
)  # fmt: skip
def test_only_what_is_in_retry_on_is_tried_again(error: BaseException, kind: str) -> None:
    settlement = settled(error, Policy(retry_on=(OSError,)))
    assert settlement.kind == kind
    if kind == "dead":
        assert settlement.reason.startswith("not to be tried again (it is not in retry_on): ")


def test_give_up_on_wins() -> None:
    policy = Policy(retry_on=(ValueError, OSError), give_up_on=(NoCard, OSError))
    settlement = settled(NoCard("expired"), policy)
    assert settlement.kind == "dead"
    assert settlement.reason == f"not to be tried again (it is in give_up_on): {__name__}.NoCard: expired"
    assert settled(ValueError(), policy).kind == "retry"
    assert settled(OSError(), policy).kind == "dead"
    assert settled(KeyError(), policy).kind == "dead"


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([OSError(), OSError()], "retry"), ([OSError(), KeyError()], "dead"), ([OSError(), NoCard()], "dead"),
        ([ExceptionGroup("in", [OSError()]), OSError()], "retry"), ([ExceptionGroup("in", [NoCard()])], "dead"),
    ],
)  # fmt: skip
def test_a_group_is_judged_by_its_members(members: list[Exception], kind: str) -> None:
    policy = Policy(retry_on=(OSError, ValueError), give_up_on=(NoCard,))
    assert settled(ExceptionGroup("several", members), policy).kind == kind


def test_what_alone_is_in_a_group_asks_for_itself() -> None:
    assert settled(ExceptionGroup("tasks", [ExceptionGroup("in", [Snooze(30)])])).delay == 30.0
    assert settled(ExceptionGroup("tasks", [Dead("no")])).reason == "no"
    assert settled(ExceptionGroup("tasks", [Turned(40)]), roll=0.0).delay == 40.0
    assert settled(ExceptionGroup("tasks", [Dead("no"), KeyError()])).kind == "retry"


# ------------------------------------------------------------------------------------------------------ retry_after


@pytest.mark.parametrize(("after", "seconds"), [(30, 30.0), (0.5, 0.5), (timedelta(minutes=5), 300.0)])
def test_retry_after_is_the_least(after: Any, seconds: float) -> None:
    assert settled(Turned(after), roll=0.0).delay == seconds
    assert settled(Turned(after), roll=1.0).delay == pytest.approx(1.1 * seconds)
    assert settled(Turned(after), Policy(1)).kind == "dead"


@pytest.mark.parametrize("after", [-1, math.nan, math.inf, "30", True, 10**400, 8 * 86_400, object(), [], b"1"])
def test_a_bad_retry_after_is_left_aside_with_a_word(after: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        assert settled(Turned(after)).delay == 1.0
    assert "retry_after=" in caplog.text
    assert "is ignored" in caplog.text


@pytest.mark.parametrize("error", [Turned(None), Turned(0), Liar("x"), KeyError()])
def test_no_retry_after_says_nothing(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert settled(error).delay == 1.0
    assert caplog.text == ""


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_is_no_exception_is_a_failed_attempt_too(kind: type[BaseException]) -> None:
    settlement = settled(kind())
    assert settlement.kind == "retry"
    assert settlement.reason.endswith(kind.__name__)
