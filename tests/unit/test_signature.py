"""Options of a call: what they become, and how wrong ones are refused."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tenure import App, ConfigError
from tenure.message import When
from tests.unit.fake_broker import FakeBroker

broker = FakeBroker()
app = App("shop", broker=broker)
NOON = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))


@app.task(priority=3, max_attempts=7)
def charge(order_id: int, cents: int = 1) -> str:
    return f"{order_id}:{cents}"


def test_a_signature_is_frozen_and_sent_as_it_is() -> None:
    signature = charge.s(42, cents=999)
    assert (signature.task, signature.args, signature.kwargs) == (charge, (42,), {"cents": 999})
    with pytest.raises(FrozenInstanceError):
        signature.args = ()  # type: ignore[misc]
    job = signature.delay()
    assert (job.id, job.task, job.queue) == (broker.last.id, charge.name, "default")
    assert charge.s(1) == charge.s(1)
    assert charge.s(1) != charge.s(2)


def test_wrong_arguments_are_refused_when_the_signature_is_made() -> None:
    with pytest.raises(TypeError, match=r"charge\(\) missing a required argument: 'order_id'"):
        charge.s()  # type: ignore[call-arg]


def test_later_options_replace_earlier_ones_and_keep_the_rest() -> None:
    first = charge.s(1).options(queue="a", priority=0, delay=5)
    second = first.options(queue="b", run_at=NOON)
    assert first.call_options.queue == "a"
    assert second.call_options.queue == "b"
    assert second.call_options.priority == 0
    assert second.call_options.run_at == When(NOON.timestamp())
    assert charge.options(queue="a").options(priority=1).s(1) == charge.s(1).options(queue="a", priority=1)


def test_all_options_reach_the_message() -> None:
    charge.options(
        queue="billing",
        key="order:1",
        delay=timedelta(seconds=30),
        expires=3600,
        priority=8,
        visibility_timeout=timedelta(minutes=2),
        max_attempts=2,
    ).delay(1)
    message = broker.last
    assert (message.queue, message.key, message.priority, message.max_attempts) == ("billing", "order:1", 8, 2)
    assert (message.run_at, message.expires) == (When(30.0, True), When(3600.0, True))
    assert message.visibility_timeout == 120.0


def test_without_options_the_task_decides() -> None:
    charge.options(queue=None, key=None, delay=None, priority=None).delay(1)
    message = broker.last
    assert (message.queue, message.key, message.priority, message.max_attempts) == ("default", None, 3, 7)
    assert (message.run_at, message.expires, message.visibility_timeout) == (None, None, None)


def test_moments_are_absolute() -> None:
    options = charge.options(run_at=NOON, expires=NOON.astimezone(UTC)).s(1).call_options
    assert options.run_at == options.expires == When(NOON.timestamp(), False)
    assert charge.options(run_at=datetime(1900, 1, 1, tzinfo=UTC)).s(1).call_options.run_at == When(0.0)
    assert charge.options(delay=0).s(1).call_options.run_at == When(0.0, True)


NAIVE = NOON.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"delay": 10, "expires": 5}, "delay=10 and expires=5 leave no time to start"),
        ({"delay": timedelta(minutes=1), "expires": 59}, "delay=60 and expires=59 leave no time"),
        ({"run_at": NOON, "expires": NOON - timedelta(seconds=1)}, "run_at= and expires= leave no time"),
        ({"run_at": NAIVE}, "run_at=.*naive datetime.*time zone"),
        ({"expires": NAIVE}, "expires=.*naive"),
        ({"delay": NOON}, "give it as run_at="),
        ({"run_at": 5}, "run_at=5 is no datetime.*delay="),
        ({"delay": 5, "run_at": NOON}, "give one of them"),
        ({"delay": -1}, "delay=-1 .*0 to 3155760000 seconds"),
        ({"delay": timedelta(seconds=-1)}, "delay="),
        ({"delay": math.nan}, "delay=nan"),
        ({"delay": math.inf}, "delay=inf"),
        ({"delay": True}, "delay=True is a bool"),
        ({"delay": "5"}, "delay='5' is a str"),
        ({"delay": 10**400}, "delay="),
        ({"expires": -0.1}, "expires=-0.1"),
        ({"expires": False}, "expires=False"),
        ({"priority": 10}, "priority=10 .*whole number from 0 to 9"),
        ({"priority": -1}, "priority=-1"),
        ({"priority": True}, "priority=True"),
        ({"priority": 5.0}, "priority=5.0"),
        ({"visibility_timeout": 0}, "visibility_timeout=0 .*0.1 to 604800 seconds"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"queue": ""}, "queue '' is empty"),
        ({"queue": 3}, "queue has to be a str, not int"),
        ({"key": "a\nb"}, "control character"),
        ({"key": "x" * 513}, "513 bytes"),
        ({"key": 42}, "key has to be a str, not int"),
        ({"countdown": 3}, r"options\(\) has no option countdown=; here it is delay="),
        ({"eta": NOON}, "run_at="),
        ({"dely": 3}, "Did you mean 'delay'"),
    ],
)
def test_an_impossible_option_is_refused(words: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        charge.options(**words)
    with pytest.raises(ConfigError, match=text):
        charge.s(1).options(**words)
    with pytest.raises(ConfigError, match=text):
        charge.options(queue="x").options(**words)


def test_a_later_option_may_not_end_before_an_earlier_one_begins() -> None:
    with pytest.raises(ConfigError, match="delay=10 and expires=5"):
        charge.options(delay=10).s(1).options(expires=5)
    assert charge.options(delay=10, expires=10).s(1).call_options.expires == When(10.0, True)
    mixed = charge.options(delay=10, expires=NOON).s(1)  # only the broker's clock can tell
    assert mixed.call_options.run_at == When(10.0, True)
