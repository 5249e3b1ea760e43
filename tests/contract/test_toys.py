"""The contract's tests see what they are for: a broker that breaks one rule fails the test of that rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tenure.broker import Added, EndedAs, Extend, Extended, JobState, Settled
from tenure.brokers.inprocess import MemoryResults
from tenure.brokers.leasing import ServerConsumer, ServerKeeper
from tenure.brokers.memory import MemoryBroker
from tenure.brokers.operating import ServerAdmin
from tenure.ids import new_id
from tenure.message import Delivery, Message, Settlement
from tenure.testing.contract import (
    AddingContract,
    AgainContract,
    CancelContract,
    ContractPart,
    KeyContract,
    LeasingContract,
    LeavingContract,
    OrderContract,
    RecordContract,
    ResultContract,
    SettlingContract,
    TakingContract,
    TimeContract,
)
from tenure.testing.contract.keys import Call
from tenure.testing.contract.scene import Scene
from tests.contract.sites import MemorySite

Rule = Callable[..., Any]
"""What a method does in place of the right one, which it is given first."""


def forgets_ids(right: Rule, broker: object, messages: Sequence[Message]) -> list[Added]:
    answers: list[Added] = right(broker, [one._replace(id=new_id()) for one in messages])
    return [answer._replace(id=one.id) for one, answer in zip(messages, answers, strict=True)]


def drops(**fields: Any) -> Rule:
    def add(right: Rule, broker: object, messages: Sequence[Message]) -> list[Added]:
        answers: list[Added] = right(broker, [one._replace(**fields) for one in messages])
        return answers

    return add


def accepts_late(right: Rule, consumer: object, settlements: Sequence[Settlement]) -> list[Settled]:
    return [Settled("ok", "done") if one.answer == "refused" else one for one in right(consumer, settlements)]


def forgets_followers(right: Rule, consumer: object, settlements: Sequence[Settlement]) -> list[Settled]:
    answers: list[Settled] = right(consumer, [one._replace(then=()) for one in settlements])
    return answers


def each(change: Callable[[Delivery], Sequence[Delivery]]) -> Rule:
    def take(right: Rule, *words: object) -> list[Delivery]:
        return [two for one in right(*words) for two in change(one)]

    return take


def backwards(right: Rule, *words: object) -> list[Delivery]:
    return list(reversed(right(*words)))


def loses_nothing(right: Rule, keeper: object, items: Sequence[Extend]) -> list[Extended]:
    return [one if one.deadline is not None else Extended(1e9) for one in right(keeper, items)]


def tells_nobody(right: Rule, keeper: object, items: Sequence[Extend]) -> list[Extended]:
    return [one._replace(cancel=None) for one in right(keeper, items)]


def keeps_all(right: Rule, keeper: object, session: str, end: str, cause: str, settling: object) -> list[EndedAs]:
    return []


def miscounts(right: Rule, admin: object, verify: bool = False) -> dict[str, Any]:
    answer: dict[str, Any] = right(admin, verify)
    for row in (answer["record"] if verify else answer)["queues"].values():
        row["added"] += 1
    return answer


def hurries(right: Rule, results: object, ids: Sequence[str]) -> list[JobState]:
    return [one._replace(state="done") if one.state == "running" else one for one in right(results, ids)]


class Toy(NamedTuple):
    """Where it differs from `memory://`, and which test of the contract has to see that."""

    kind: type[Any]
    method: str
    rule: Rule
    part: type[ContractPart]
    test: str


TOYS = {
    "knows no line again": Toy(
        MemoryBroker, "add", forgets_ids, AddingContract, "an_add_that_is_sent_again_makes_no_second_job"
    ),
    "has no keys": Toy(
        MemoryBroker, "add", drops(key=None), KeyContract, "a_second_call_with_a_key_meets_the_first_job"
    ),
    "takes all calls with a key for one": Toy(
        MemoryBroker, "add", drops(fingerprint=bytes(16)), KeyContract,
        "the_same_key_with_other_arguments_is_a_conflict",
    ),
    "has one priority": Toy(
        MemoryBroker, "add", drops(priority=5), OrderContract,
        "the_highest_priority_is_first_and_inside_of_it_the_oldest",
    ),
    "starts everything at once": Toy(
        MemoryBroker, "add", drops(run_at=None), TimeContract, "a_delayed_job_is_under_no_lease"
    ),
    "starts what is too late": Toy(
        MemoryBroker, "add", drops(expires=None), TimeContract,
        "a_job_that_is_too_late_is_never_given_out_and_dead",
    ),
    "has one visibility timeout": Toy(
        MemoryBroker, "add", drops(visibility_timeout=None), LeasingContract,
        "a_long_visibility_timeout_of_a_job_outlasts_the_workers",
    ),
    "takes late settlements": Toy(
        ServerConsumer, "settle", accepts_late, SettlingContract, "a_second_verb_for_one_hand_out_is_refused"
    ),
    "loses what follows": Toy(
        ServerConsumer, "settle", forgets_followers, AgainContract,
        "what_follows_is_added_with_the_settlement_and_once",
    ),
    "gives each job out twice": Toy(
        ServerConsumer, "take", each(lambda one: (one, one)), TakingContract,
        "many_workers_share_the_jobs_and_none_comes_twice",
    ),
    "counts no losses": Toy(
        ServerConsumer, "take", each(lambda one: (one._replace(losses=0),)), LeavingContract,
        "a_bye_for_a_dead_process_counts_a_loss",
    ),
    "counts no attempts": Toy(
        ServerConsumer, "take", each(lambda one: (one._replace(attempt=1),)), AgainContract,
        "out_of_attempts_a_retry_makes_the_job_dead",
    ),
    "is a stack": Toy(
        ServerConsumer, "take", backwards, OrderContract, "one_by_one_or_in_one_call_the_first_is_first"
    ),
    "never says that a lease is lost": Toy(
        ServerKeeper, "extend", loses_nothing, LeasingContract,
        "an_extend_of_a_job_that_is_done_or_was_never_there_says_lost",
    ),
    "keeps what a session held": Toy(
        ServerKeeper, "bye", keeps_all, LeavingContract, "a_bye_gives_everything_back_at_once"
    ),
    "cancels and tells nobody": Toy(
        ServerKeeper, "extend", tells_nobody, CancelContract, "a_running_job_is_told_at_its_next_extend"
    ),
    "miscounts": Toy(ServerAdmin, "record", miscounts, RecordContract, "what_an_operator_does_is_counted_too"),
    "is done too early": Toy(
        MemoryResults, "states", hurries, ResultContract, "states_come_in_the_order_of_the_question"
    ),
}  # fmt: skip


def held(toy: Toy) -> None:
    """Run the test of the contract as pytest would."""
    scene = Scene(MemorySite())
    words: dict[str, Any] = {"call": Call(scene)} if toy.part is KeyContract else {}
    if toy.part is CancelContract:
        words = {"terminate": False, "told": "ask"}
    try:
        getattr(toy.part(), f"test_{toy.test}")(scene=scene, **words)
    finally:
        scene.close()


@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_a_broker_that_breaks_a_rule_fails_its_test(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    held(toy)
    right = getattr(toy.kind, toy.method)
    monkeypatch.setattr(toy.kind, toy.method, lambda *words, **more: toy.rule(right, *words, **more))
    with pytest.raises(AssertionError):
        held(toy)
