"""The codec by property: every value comes back exactly, and no bytes raise anything but DecodeError."""

from __future__ import annotations

import contextlib
import random
from typing import Any
from zlib import crc32

import msgpack.fallback
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import codec
from tenure.errors import DecodeError
from tenure.message import Message
from tenure.outcome import failure_from

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    TEXT,
    st.binary(),
)
HASHABLE = st.recursive(
    SCALARS, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)), max_leaves=6
)
VALUES = st.recursive(
    st.one_of(SCALARS, st.binary().map(bytearray), st.sets(HASHABLE, max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)
ARGS = st.lists(VALUES, max_size=3).map(tuple)
KWARGS = st.dictionaries(TEXT, VALUES, max_size=3)


def shape(value: Any) -> Any:
    """A form in which equal means: same value and same type, nan and -0.0 included."""
    kind = type(value).__name__
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(shape(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return kind, [shape(item) for item in value]
    if isinstance(value, dict):
        return kind, [(shape(key), shape(item)) for key, item in value.items()]
    return kind, value


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with its dicts filled in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    if isinstance(value, (list, tuple)):
        return type(value)(shuffled(item, chance) for item in value)
    if isinstance(value, (set, frozenset)):
        items = list(value)
        chance.shuffle(items)
        return type(value)(items)
    return value


@contextlib.contextmanager
def pure_python() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "Packer", msgpack.fallback.Packer)
        patch.setattr(codec, "Unpacker", msgpack.fallback.Unpacker)
        patch.setattr(codec, "unpackb", msgpack.fallback.unpackb)
        patch.setattr(codec, "_idle", [])
        yield


@given(ARGS, KWARGS)
def test_a_call_comes_back_exactly_from_both_packers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    packed = codec.pack_call(args, kwargs)
    assert shape(codec.unpack_call(packed)) == shape((args, kwargs))
    with pure_python():
        assert codec.pack_call(args, kwargs) == packed
        assert shape(codec.unpack_call(packed)) == shape((args, kwargs))


@given(ARGS, KWARGS, st.randoms(use_true_random=False))
def test_the_fingerprint_does_not_depend_on_order(
    args: tuple[Any, ...], kwargs: dict[str, Any], chance: random.Random
) -> None:
    one = codec.fingerprint("t", args, kwargs)
    assert codec.fingerprint("t", shuffled(args, chance), shuffled(kwargs, chance)) == one
    assert codec.fingerprint("t", args, kwargs, codec.pack_call(args, kwargs)) == one
    assert codec.fingerprint("t", (*args, None), kwargs) != one


@given(KWARGS, st.none() | st.floats(0.001, 1e9))
def test_a_body_comes_back(headers: dict[str, Any], timeout: float | None) -> None:
    args = codec.pack_call((1,), {})
    message = Message("0" * 32, "t", args, crc32(args), b"f" * 16, headers=headers, timeout=timeout)
    body = codec.decode_body(codec.encode_body(message))
    assert shape(tuple(body)) == shape((1, args, message.checksum, headers, timeout))


def reads(data: bytes) -> None:
    for read in (codec.unpack_value, codec.unpack_call, codec.decode_body, codec.unpack_failure):
        with contextlib.suppress(DecodeError):
            read(data)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    reads(data)
    reads(b"\x95\x01" + data)
    with pure_python():
        reads(data)


@given(VALUES, st.data())
def test_damaged_bytes_raise_nothing_else(value: Any, data: st.DataObject) -> None:
    packed = bytearray(codec.pack_value([value]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    reads(damaged)
    with pure_python():
        reads(damaged)


@given(st.text())
def test_every_text_of_an_exception_can_be_stored(text: str) -> None:
    failure = failure_from(ValueError(text))
    assert codec.unpack_failure(codec.pack_failure(failure)) == failure
