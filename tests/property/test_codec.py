"""The codec by property: every value comes back exactly, and no bytes raise anything but DecodeError."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import random
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from typing import Any
from zlib import crc32

import msgpack.fallback
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import codec, packing
from tenure.errors import DecodeError
from tenure.hints import plan
from tenure.leaves import Enums
from tenure.message import Message
from tenure.outcome import failure_from

TEXT = st.text(st.characters(codec="utf-8"))


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


ENUMS = Enums([Color, Mode])
ZONES = st.one_of(
    st.none(),
    st.timezones(),
    st.timedeltas(-dt.timedelta(days=1) + dt.timedelta.resolution, dt.timedelta(days=1) - dt.timedelta.resolution).map(
        dt.timezone
    ),
    st.builds(dt.timezone, st.just(dt.timedelta(hours=1)), TEXT),
)


def folded(value: Any, fold: int) -> Any:
    return value.replace(fold=fold)


LEAVES = st.one_of(
    st.builds(folded, st.datetimes(timezones=ZONES), st.integers(0, 1)),
    st.builds(folded, st.times(timezones=ZONES), st.integers(0, 1)),
    st.dates(),
    st.timedeltas(),
    st.decimals().filter(lambda value: not value.is_snan()),  # which have no hash
    st.sampled_from([Decimal("-0"), Decimal("NaN123"), Decimal("1E-999999")]),
    st.uuids(),
    st.sampled_from([*Color, *Mode, Mode.READ | Mode.RUN, Mode(0)]),
)
SIGNALING = st.integers(0, 10**20).map(lambda payload: Decimal(f"-sNaN{payload or ''}"))
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
    SCALARS | LEAVES, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)), max_leaves=6
)
VALUES = st.recursive(
    st.one_of(SCALARS, LEAVES, SIGNALING, st.binary().map(bytearray), st.sets(HASHABLE, max_size=3)),
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
    if is_dataclass(value):
        return kind, shape(vars(value))
    # The text of a time shows its zone, that zone's name, and its fold.
    return kind, value if isinstance(value, (int, str, bytes)) else repr(value)


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
        patch.setattr(packing, "Packer", msgpack.fallback.Packer)
        patch.setattr(codec, "Unpacker", msgpack.fallback.Unpacker)
        patch.setattr(codec, "unpackb", msgpack.fallback.unpackb)
        patch.setattr(packing, "_idle", [])
        patch.setattr(packing, "_idle_plain", [])
        yield


@given(ARGS, KWARGS)
def test_a_call_comes_back_exactly_from_both_packers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    packed = codec.pack_call(args, kwargs, ENUMS)
    assert shape(codec.unpack_call(packed, ENUMS)) == shape((args, kwargs))
    with pure_python():
        assert codec.pack_call(args, kwargs, ENUMS) == packed
        assert shape(codec.unpack_call(packed, ENUMS)) == shape((args, kwargs))


@given(ARGS, KWARGS, st.randoms(use_true_random=False))
def test_the_fingerprint_does_not_depend_on_order(
    args: tuple[Any, ...], kwargs: dict[str, Any], chance: random.Random
) -> None:
    one = codec.fingerprint("t", args, kwargs, None, ENUMS)
    assert codec.fingerprint("t", shuffled(args, chance), shuffled(kwargs, chance), None, ENUMS) == one
    assert codec.fingerprint("t", args, kwargs, codec.pack_call(args, kwargs, ENUMS), ENUMS) == one
    assert codec.fingerprint("t", (*args, None), kwargs, None, ENUMS) != one


PLAIN_KWARGS = st.dictionaries(TEXT, SCALARS | st.lists(SCALARS), max_size=3)


@given(PLAIN_KWARGS, st.none() | st.floats(0.001, 1e9))
def test_a_body_comes_back(headers: dict[str, Any], timeout: float | None) -> None:
    args = codec.pack_call((1,), {})
    message = Message("0" * 32, "t", args, crc32(args), b"f" * 16, headers=headers, timeout=timeout)
    body = codec.decode_body(codec.encode_body(message))
    assert shape(tuple(body)) == shape((1, args, message.checksum, headers, timeout))


def reads(data: bytes) -> None:
    for read in (codec.unpack_value, codec.unpack_call, codec.unpack_result):
        with contextlib.suppress(DecodeError):
            read(data, ENUMS)
    for other in (codec.decode_body, codec.unpack_failure):
        with contextlib.suppress(DecodeError):
            other(data)
    with contextlib.suppress(DecodeError):
        codec.plain_args(data, {"deflated": 100})


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    reads(data)
    reads(b"\x95\x01" + data)
    with pure_python():
        reads(data)


@given(VALUES, st.data())
def test_damaged_bytes_raise_nothing_else(value: Any, data: st.DataObject) -> None:
    packed = bytearray(codec.pack_value([value], "value", ENUMS))
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


@dataclass
class Leaf:
    name: str
    when: dt.datetime | None
    amount: Decimal | int


@dataclass
class Branch:
    leaves: list[Leaf]
    by_name: dict[str, Leaf | Branch]
    color: Color | None = None
    anything: Any = None


LEAF = st.builds(Leaf, TEXT, st.none() | st.datetimes(timezones=ZONES), st.decimals(allow_nan=False) | st.integers())
BRANCH = st.recursive(
    st.builds(Branch, st.lists(LEAF, max_size=2), st.just({}), st.none() | st.sampled_from(Color), SCALARS),
    lambda inner: st.builds(
        Branch, st.lists(LEAF, max_size=2), st.dictionaries(TEXT, LEAF | inner, max_size=2), st.none(), VALUES
    ),
    max_leaves=4,
)


def grow(branches: list[Branch | None], leaf: Leaf | None = None) -> Branch: ...  # type: ignore[empty-body]


@given(st.lists(st.none() | BRANCH, max_size=2), st.none() | LEAF)
def test_objects_come_back_by_their_hints(branches: list[Branch | None], leaf: Leaf | None) -> None:
    hints = plan(grow)
    enums = hints.enums.with_(ENUMS)
    args, kwargs = hints.pack((branches,), {"leaf": leaf})
    back = hints.fit(*codec.unpack_call(codec.pack_call(args, kwargs, enums), enums))
    assert shape(back) == shape(((branches,), {"leaf": leaf}))


@given(VALUES)
def test_values_that_fit_no_hint_only_raise_type_error(value: Any) -> None:
    with contextlib.suppress(TypeError):
        plan(grow).fit((value,), {"leaf": value})
