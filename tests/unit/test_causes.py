"""The error of a failed job, made anew from its texts without running code of its class."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from tenure.broker import JobState
from tenure.causes import cause_of
from tenure.codec import pack_failure
from tenure.errors import JobFailed, RemoteError
from tenure.outcome import Failure, failure_from
from tenure.results import failed

RAN: list[str] = []


class Plain(Exception):
    """Has no code of its own."""


class Odd(Exception):
    def __init__(self, order: int, cents: int) -> None:
        RAN.append("init")
        super().__init__(f"order {order}")
        self.order = order


class New(Exception):
    def __new__(cls, *args: object) -> Self:
        RAN.append("new")
        return super().__new__(cls)


class Speaks(Exception):
    def __str__(self) -> str:
        return f"{self.missing}"  # type: ignore[attr-defined]


class Exits(Exception):
    """Each of its methods, and each look at it, would end the caller."""

    def __str__(self) -> str:
        RAN.append("str")
        raise SystemExit(3)

    def __repr__(self) -> str:
        RAN.append("repr")
        raise SystemExit(3)

    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        raise SystemExit(3)

    def __setattr__(self, name: str, value: object) -> None:
        RAN.append(name)
        raise SystemExit(3)


class Telling(Exception):
    def __str__(self) -> str:
        RAN.append("str")
        return f"order {self.args[0]}"


class Watching(type):
    def __getattribute__(cls, name: str) -> Any:
        RAN.append(name)
        return super().__getattribute__(name)


class Watched(Exception, metaclass=Watching):
    pass


class Posing:
    """Is no class, and runs code when it is asked whether it is one (`isinstance` asks for `__class__`)."""

    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        return super().__getattribute__(name)


posing = Posing()


class Outer:
    class Inner(Plain):
        pass


def failure_of(error: BaseException) -> Failure:
    return failure_from(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("key"),
        Plain("a", 1, None),
        Outer.Inner("nested"),
        FileNotFoundError(2, "No such file"),
        SystemExit(3),
        Exception(),
        Plain(),
    ],
)
def test_an_error_comes_back_as_it_was(error: BaseException) -> None:
    found = cause_of(failure_of(error))
    assert type(found) is type(error)
    assert (found.args, str(found)) == (error.args, str(error))
    assert getattr(found, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize("error", [Odd(1, 2), New("x")])
def test_no_constructor_of_the_class_itself_runs(error: Exception) -> None:
    failure = failure_of(error)
    RAN.clear()
    found = cause_of(failure)
    assert type(found) is type(error)
    assert str(found) == failure.text
    assert RAN == []


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(f"{__name__}.Exits", "order 7", notes=("a note",), args=("x",)), RemoteError),
        (Failure(f"{__name__}.Exits", "order 7", notes=("a note",)), Exits),
        (Failure(f"{__name__}.Telling", "order 7", notes=("a note",), args=(7,)), RemoteError),
        (Failure(f"{__name__}.Watched", "order 7", notes=("a note",), args=("order 7",)), Watched),
        (Failure(f"{__name__}.posing", "order 7", notes=("a note",)), RemoteError),
        (Failure(f"{__name__}.posing.Inner", "order 7", notes=("a note",)), RemoteError),
    ],
)
def test_nothing_of_the_class_runs_when_a_job_s_error_is_made(failure: Failure, kind: type) -> None:
    RAN.clear()
    state = JobState("0" * 32, "dead", 1, 0, "gave up after 1 attempt", failure=pack_failure(failure))
    error = failed(state, ())
    assert RAN == []
    found = error.__cause__
    assert type(found) is kind
    assert BaseException.__dict__["__dict__"].__get__(found)["__notes__"] == ["a note"]
    assert "order 7" in str(error)


def test_a_module_that_exits_when_it_is_imported_does_not_end_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exits_for_a_cause.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert type(cause_of(Failure("exits_for_a_cause.NoStock", "none left"), ["exits_for_a_cause"])) is RemoteError


def test_arguments_that_could_not_be_kept_leave_the_text() -> None:
    found = cause_of(failure_of(ValueError(object)))
    assert isinstance(found, ValueError)
    assert str(found) == str(object)


@pytest.mark.parametrize(
    "failure",
    [
        failure_of(ExceptionGroup("many", [ValueError("a")])),
        failure_of(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")),
        failure_of(Speaks("x")),
        Failure("shop.gone.NoStock", "none left"),
        Failure("", "bytes"),
        Failure("os.path.join", "a function"),
        Failure("builtins.int", "no exception"),
        Failure("print", "no exception"),
        Failure("..", "no name"),
        Failure("tenure.causes.sys", "a module"),
    ],
)
def test_what_cannot_be_made_is_told_by_a_remote_error(failure: Failure) -> None:
    found = cause_of(failure)
    assert type(found) is RemoteError
    assert failure.text in str(found)
    assert found.kind == failure.kind


def test_only_modules_that_the_app_names_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_for_a_cause.py").write_text("class NoStock(Exception):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    failure = Failure("imported_for_a_cause.NoStock", "none left")
    assert type(cause_of(failure)) is RemoteError
    assert "imported_for_a_cause" not in sys.modules
    found = cause_of(failure, ["imported_for_a_cause"])
    assert (type(found).__name__, str(found)) == ("NoStock", "none left")
    del sys.modules["imported_for_a_cause"]


def test_a_modules_own_getattr_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.modules[__name__], "__getattr__", asked.append, raising=False)
    assert type(cause_of(Failure(f"{__name__}.Missing", "x"))) is RemoteError
    assert asked == []


def test_notes_come_along() -> None:
    error = ValueError("no")
    error.add_note("order 7")
    assert cause_of(failure_of(error)).__notes__ == ["order 7"]


def _failed(error: BaseException) -> JobFailed:
    packed = pack_failure(failure_of(error))
    return failed(JobState("0" * 32, "dead", 1, 0, "gave up after 1 attempt: no", failure=packed), ())


def test_a_failed_job_tells_all_and_can_be_pickled() -> None:
    try:
        raise Odd(1, 2)
    except Odd as raised:
        error = _failed(raised)
    assert isinstance(error.__cause__, Odd)
    assert "gave up after 1 attempt: no" in str(error)
    assert "raise Odd(1, 2)" in str(error)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is JobFailed
        assert str(again) == str(error)
        assert (again.id, again.reason, again.kind) == (error.id, error.reason, f"{__name__}.Odd")
        assert again.traceback == error.traceback


def test_a_remote_error_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(RemoteError("none left", "shop.NoStock")))
    assert (str(again), again.kind) == ("shop.NoStock: none left", "shop.NoStock")


def test_a_failure_that_cannot_be_read_and_none_at_all() -> None:
    error = failed(JobState("0" * 32, "dead", reason="worker lost (SIGKILL)"), ())
    assert str(error) == f"job {'0' * 32} has failed for good: worker lost (SIGKILL)"
    assert error.__cause__ is None
    broken = failed(JobState("0" * 32, "dead", reason="x", failure=b"\xc1"), ())
    assert isinstance(broken.__cause__, RemoteError)
