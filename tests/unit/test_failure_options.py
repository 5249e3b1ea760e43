"""The options of a task that say what becomes of a job that fails, checked where the task is defined."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tenure import App, Backoff, Dead, DeadJob, Failure, Retry, TaskDefinitionError
from tests.unit.fake_broker import FakeBroker


@pytest.fixture
def app() -> App:
    return App("shop", broker=FakeBroker())


def charge(order: int) -> None: ...


def hook(job: DeadJob, error: Failure) -> None: ...


async def async_hook(job: DeadJob, error: Failure) -> None: ...


def test_without_options_everything_is_tried_again_up_to_an_hour_apart(app: App) -> None:
    own = app.task(charge).defaults
    assert (own.max_attempts, own.max_losses, own.retry_on, own.give_up_on, own.on_dead) == (20, 5, None, (), None)
    assert own.backoff == Backoff(base=1, factor=2, cap=3600)


def test_a_backoff_without_a_cap_has_none(app: App) -> None:
    own = app.task(backoff=Backoff(base=3600, factor=2))(charge).defaults
    assert own.backoff.cap is None
    assert own.backoff.delay(4, 1.0) == 28_800


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (OSError, (OSError,)), ((OSError, KeyError), (OSError, KeyError)), ([OSError], (OSError,)), ((), ()),
        (BaseException, (BaseException,)), (frozenset({SystemExit}), (SystemExit,)),
    ],
)  # fmt: skip
def test_exception_classes_alone_or_several(app: App, given: Any, kept: tuple[type, ...]) -> None:
    own = app.task(retry_on=given, give_up_on=given)(charge).defaults
    assert (own.retry_on, own.give_up_on) == (kept, kept)
    assert app.task(name="other", retry_on=None)(charge).defaults.retry_on is None


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("ConnectionErorr", "write the class, not its name. Did you mean 'ConnectionError'?"),
        (ValueError("x"), "write the class alone: ValueError"), (5, "not 5"), (int, "not <class 'int'>"),
        ((OSError, "KeyError"), "Did you mean 'KeyError'?"), ((OSError, (KeyError,)), "takes exception classes"),
        (Retry, "takes no Retry"), ((OSError, Dead), "takes no Dead"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["retry_on", "give_up_on"])
def test_what_is_no_exception_class_is_refused(app: App, name: str, given: Any, hint: str) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        app.task(**{name: given})(charge)
    assert name in str(refused.value)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("retry_no", "retry_on"), ("giveup_on", "give_up_on"), ("backof", "backoff"), ("on_ded", "on_dead"),
        ("max_loses", "max_losses"), ("autoretry_for", "retry_on="), ("retry_jitter", "Backoff(jitter=)"),
        ("dont_autoretry_for", "give_up_on="), ("throws", "give_up_on="), ("on_failure", "on_dead="),
    ],
)  # fmt: skip
def test_a_mistyped_option_is_told_which_was_meant(app: App, word: str, meant: str) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        app.task(**{word: 1})  # type: ignore[call-overload]
    assert meant in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        {"max_attempts": 0}, {"max_attempts": math.inf}, {"max_losses": 0}, {"max_losses": True}, {"backoff": 5},
        {"backoff": {"base": 1}}, {"backoff": "1s"},
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_by_its_name(app: App, words: dict[str, Any]) -> None:
    with pytest.raises(TaskDefinitionError, match=f"{next(iter(words))}="):
        app.task(**words)


@pytest.mark.parametrize("given", [5, "hook", async_hook, lambda job: None, lambda a, b, c: None, int, charge])
def test_what_cannot_be_called_as_a_hook_is_refused(app: App, given: Any) -> None:
    with pytest.raises(TaskDefinitionError, match=r"def hook\(job: DeadJob, error: Failure\)"):
        app.task(on_dead=given)
    with pytest.raises(TaskDefinitionError, match=r"@app\.on_dead"):
        app.on_dead(given)


def test_the_tasks_own_hook_comes_before_the_apps(app: App) -> None:
    def other(job: DeadJob, error: Failure, more: int = 1) -> None: ...

    assert app.on_dead(other) is other
    app.on_dead(other)
    app.task(name="pay", on_dead=hook)(charge)
    app.task(name="mail", on_dead=None)(charge)
    assert app.dead_hooks("pay") == [hook, other]
    assert app.dead_hooks("mail") == app.dead_hooks("unknown") == [other]
