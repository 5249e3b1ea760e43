"""Exceptions as text: bounded, readable, and never an exception of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tenure.codec import pack_failure, pack_value, unpack_failure
from tenure.errors import DecodeError
from tenure.outcome import MAX_FAILURE_BYTES, Failure, Link, escape, failure_from, fit, shorten

E = TypeVar("E", bound=BaseException)


class NoStock(Exception):
    pass


class Hostile(Exception):
    """Spoils whatever it can."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class NoWord(Exception, metaclass=Nameless):
    pass


def raised(error: BaseException, depth: int = 0) -> Failure:
    def down(left: int) -> None:
        if left:
            down(left - 1)
        raise error

    try:
        down(depth)
    except BaseException as caught:  # noqa: BLE001
        return failure_from(caught)
    raise AssertionError


def test_it_names_the_class_the_text_and_the_frames() -> None:
    failure = raised(NoStock("none left"))
    assert failure.kind.endswith("test_outcome.NoStock")
    assert failure.text == "none left"
    assert "raise error" in failure.traceback
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert raised(ValueError("x")).kind == "ValueError"


def test_the_cause_is_told() -> None:
    error = NoStock("second")
    error.__cause__ = KeyError("first")
    assert "KeyError: 'first'" in raised(error).traceback


@pytest.mark.parametrize("kind", [Hostile, SystemExit, KeyboardInterrupt, NoWord])
def test_it_never_raises(kind: type[BaseException]) -> None:
    failure = raised(kind())
    assert failure.kind
    assert "raise error" in failure.traceback
    assert unpack_failure(pack_failure(failure)) == failure


TEXTS = ["x" * 10**6, "😀" * 10**5, "\udc80" * 10**5, "\0" * 10**5, "line\n" * 10**5]


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_bounded_and_keeps_its_frames(text: str) -> None:
    failure = raised(largest(text), depth=200)
    packed = pack_failure(failure)
    assert len(packed) <= MAX_FAILURE_BYTES
    assert unpack_failure(packed) == failure
    assert "characters left out" in failure.text
    assert len(failure.traceback) > 2000
    assert failure.notes
    assert len(failure.chain) > 5


def largest(text: str) -> BaseException:
    """Make an exception of which everything is too large."""
    errors: list[BaseException] = [type(f"E{'x' * 500}", (ExceptionGroup,), {})(text, [ValueError(text)] * 50)]
    for _ in range(50):
        errors.append(NoStock(text))
        errors[-1].__cause__ = errors[-2]
    for error in errors:
        for _ in range(50):
            error.add_note(text)
    return errors[-1]


def test_what_no_terminal_shows_is_escaped() -> None:
    assert escape("grün 😀\n\tok") == "grün 😀\n\tok"
    assert escape("\0\x1b[31m\x7f\x9b\udc80\r") == "\\x00\\x1b[31m\\x7f\\x9b\\udc80\\x0d"
    assert escape("a\u202eb\u2028") == "a\\u202eb\\u2028"
    assert raised(NoStock("\udcff\0")).text == "\\udcff\\x00"


# ------------------------------------------------------------------------------------------ notes, chain, members


def test_notes_are_kept() -> None:
    error = NoStock("none left")
    error.add_note("order 7")
    error.add_note("\udc80 \0")
    failure = raised(error)
    assert failure.notes == ("order 7", "\\udc80 \\x00")
    assert failure.traceback.endswith("NoStock: none left\norder 7\n\\udc80 \\x00")


@pytest.mark.parametrize("notes", [None, 5, "abc", [1, None], [Hostile()], {"a": 1}, object()])
def test_notes_may_be_anything(notes: Any) -> None:
    error = NoStock("x")
    error.__notes__ = notes
    assert all(type(note) is str for note in raised(error).notes)


def test_the_chain_says_what_it_was_raised_from_and_what_was_being_handled() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise OSError(5, "second")  # noqa: B904  (the context is what is tested)
    except OSError as error:
        caught = error
    failure = raised(chained(NoStock("third"), caught))
    assert failure.chain == (Link("cause", 1, "OSError", "[Errno 5] second"), Link("context", 2, "KeyError", "'first'"))
    parts = ["KeyError: 'first'", "During handling", "OSError: [Errno 5] second", "direct cause", "NoStock: third"]
    places = [failure.traceback.index(part) for part in parts]
    assert places == sorted(places)


def chained(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error


def test_what_from_none_hides_is_not_told() -> None:
    error = NoStock("second")
    error.__context__ = KeyError("first")
    assert len(failure_from(error).chain) == 1
    error.__suppress_context__ = True
    assert failure_from(error).chain == ()


def test_members_of_groups_in_groups_are_told_in_order() -> None:
    inner = ExceptionGroup("inner", [ValueError("b"), chained(TypeError("c"), KeyError("d"))])
    failure = raised(BaseExceptionGroup("outer", [SystemExit("a"), inner, *[OSError(n) for n in range(8)]]))
    assert [(link.how, link.depth, link.kind) for link in failure.chain] == [
        ("member", 1, "SystemExit"), ("member", 1, "ExceptionGroup"), ("member", 2, "ValueError"),
        ("member", 2, "TypeError"), ("cause", 3, "KeyError"), ("member", 1, "OSError"), ("member", 1, "OSError"),
        ("member", 1, "OSError"),
    ]  # fmt: skip
    assert "  |   | TypeError: c" in failure.traceback
    assert failure.traceback.endswith("and 5 more")


def test_chains_that_bite_their_tail_end() -> None:
    one, two = NoStock("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    assert [link.kind for link in raised(one).chain] == ["KeyError"]
    group = ExceptionGroup("group", [one])
    two.__context__ = group
    assert len(raised(group).chain) == 2


def test_deep_chains_and_groups_are_cut() -> None:
    deep: Exception = NoStock("end")
    for _ in range(5000):
        deep = ExceptionGroup("g", [chained(NoStock("x"), deep)])
    assert 5 < len(failure_from(deep).chain) < 30
    wide = failure_from(ExceptionGroup("wide", [NoStock(n) for n in range(100_000)]))
    assert len(wide.chain) == 5
    assert wide.traceback.endswith("and 99995 more")
    del deep


class OddGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise SystemExit


def test_what_a_group_says_of_itself_is_not_asked() -> None:
    assert [link.kind for link in raised(OddGroup("odd", [KeyError(1)])).chain] == ["KeyError"]


# -------------------------------------------------------------------------------------------- contents of any shape


class NeedsThree(Exception):
    def __init__(self, one: int, two: int, *, three: int) -> None:
        self.sum = one + two + three


class TextOfAnotherType(Exception):
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307  (such a class is what is tested)


class OwnText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError


class SpoiltText(Exception):
    def __str__(self) -> str:
        return OwnText("own")


def test_contents_that_nothing_can_carry_are_told_as_text() -> None:
    with socket.socket() as open_socket:
        failure = raised(ValueError(threading.Lock(), open_socket, lambda: 1))
    assert failure.args is None
    assert "unlocked" in failure.text
    assert "socket.socket" in failure.text
    assert unpack_failure(pack_failure(failure)) == failure


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: NeedsThree(1, 2, three=3), "(1, 2)"),
        (TextOfAnotherType, "<its text could not be made: TypeError>"),
        (SpoiltText, "own"),
        (Hostile, "<its text could not be made: KeyboardInterrupt>"),
        (Exception, ""),
        (
            lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
            "'utf-8' codec can't decode byte 0xff in position 0: bad",
        ),
    ],
)
def test_odd_exceptions_have_a_text(make: Callable[[], BaseException], text: str) -> None:
    assert raised(make()).text == text


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (("x", 1, 2.5, None, True), True), ((), True), ((2**63,), False), (("\ud800",), False), ((b"x",), False),
        (("x" * 2000,), False), (tuple(range(11)), False), (([1],), False),
    ],
)  # fmt: skip
def test_a_few_plain_args_are_kept_so_that_the_error_can_be_made_again(args: tuple[Any, ...], kept: bool) -> None:
    failure = raised(NoStock(*args))
    assert failure.args == (args if kept else None)
    assert unpack_failure(pack_failure(failure)) == failure


@pytest.mark.parametrize(
    "fields",
    [
        5, [], {1: "x"}, {"kind": 5}, {"notes": "x"}, {"notes": [1]}, {"chain": [["cause", 1, "x"]]}, {"chain": [5]},
        {"args": [[1]]}, {"args": {}}, {"chain": {}},
    ],
)  # fmt: skip
def test_bytes_that_are_no_failure_are_refused(fields: Any) -> None:
    with pytest.raises(DecodeError):
        unpack_failure(pack_value(fields))


def test_a_failure_of_a_newer_version_may_say_more() -> None:
    assert unpack_failure(pack_value({"kind": "E", "text": "x", "later": [1]})) == Failure("E", "x")


def test_fit_counts_bytes() -> None:
    assert fit("abc", 64) == "abc"
    for text in ("x" * 1000, "ü" * 100, "😀" * 1000):
        assert len(fit(text, 100).encode()) <= 100


def test_shorten_keeps_both_ends() -> None:
    short = shorten("a" * 500 + "b" * 500, 100)
    assert len(short) <= 100
    assert short.startswith("aaa")
    assert short.endswith("bbb")
    assert "[900 characters left out]" in short
    assert shorten("abc", 3) == "abc"
