from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from tenure import errors
from tenure.errors import BrokerUnavailable, Interrupt, KeyConflict, TenureError

MADE: dict[str, tuple[Any, ...]] = {
    "AddError": ("no", "a" * 32),
    "KeyConflict": ("a" * 32, "b" * 32, "order:1"),
    "MessageTooLarge": ("a" * 32, 10, 5),
    "BrokerUnavailable": ("not confirmed", "a" * 32, "k", lambda: ["again"]),
    "ServerError": ("storage", "full"),
    "DecodeError": ("newer", 2),
    "NoSpace": ("the job was not added", "id"),
    "QueueClosed": ("the job was not added", "id"),
    "Retry": (3.0, "soon"),
    "Snooze": (3.0, "later"),
    "Discard": ("not wanted",),
}
KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, TenureError | Interrupt) and kind.__module__ == errors.__name__
]  # fmt: skip


def _same(one: BaseException, other: BaseException) -> None:
    assert type(one) is type(other)
    assert (str(one), one.args) == (str(other), other.args)
    mine, theirs = dict(one.__dict__), dict(other.__dict__)
    mine.pop("_resend", None)
    theirs.pop("_resend", None)
    assert mine == theirs


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_can_be_pickled_and_copied(kind: type[TenureError | Interrupt]) -> None:
    error = kind(*MADE.get(kind.__name__, ("a text",)))
    error.add_note("while testing")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        _same(again, error)
        assert again.__notes__ == ["while testing"]


def test_a_copy_of_another_process_cannot_send_again() -> None:
    error = BrokerUnavailable("not confirmed", "a" * 32, "k", lambda: ["again"])
    assert error.resend() == ["again"]
    copied = pickle.loads(pickle.dumps(error))
    with pytest.raises(BrokerUnavailable, match="not confirmed"):
        copied.resend()


def test_a_conflict_says_what_can_be_done_about_it() -> None:
    added = str(KeyConflict("a" * 32, "b" * 32, "order:1"))
    assert "'order:1' is held by job bbbb" in added
    requeued = str(KeyConflict("a" * 32, "b" * 32, ""))
    assert f"job {'a' * 32} stays dead" in requeued
    assert f"tenure job {'b' * 32}" in requeued
    assert "arguments" not in requeued


def test_what_ends_a_task_from_outside_is_no_exception() -> None:
    assert issubclass(errors.LeaseLost, Interrupt)
    assert not issubclass(Interrupt, Exception)
