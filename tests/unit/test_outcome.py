"""Exceptions as text: bounded, readable, and never an exception of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.codec import pack_failure, unpack_failure
from tenure.outcome import MAX_FAILURE_BYTES, Failure, escape, failure_from, shorten


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


def size(failure: Failure) -> int:
    return sum(len(text.encode()) for text in (failure.kind, failure.text, failure.traceback))


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


@pytest.mark.parametrize("text", ["x" * 10**6, "😀" * 10**5, "\udc80" * 10**5, "\0" * 10**5, "line\n" * 10**5])
def test_it_is_bounded(text: str) -> None:
    failure = raised(NoStock(text), depth=200)
    assert size(failure) <= MAX_FAILURE_BYTES
    assert "characters left out" in failure.text
    assert unpack_failure(pack_failure(failure)) == failure


def test_what_no_terminal_shows_is_escaped() -> None:
    assert escape("grün 😀\n\tok") == "grün 😀\n\tok"
    assert escape("\0\x1b[31m\x7f\x9b\udc80") == "\\x00\\x1b[31m\\x7f\\x9b\\udc80"
    assert raised(NoStock("\udcff\0")).text == "\\udcff\\x00"


def test_shorten_keeps_both_ends() -> None:
    short = shorten("a" * 500 + "b" * 500, 100)
    assert len(short) <= 100
    assert short.startswith("aaa")
    assert short.endswith("bbb")
    assert "[900 characters left out]" in short
    assert shorten("abc", 3) == "abc"
