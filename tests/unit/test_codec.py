"""The codec by example: what is packed comes back exactly, and what cannot be packed is named."""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import msgpack
import msgpack.fallback
import pytest

from tenure import codec, packing
from tenure.errors import DecodeError, NotSerializable
from tenure.message import Message
from tenure.outcome import Failure
from tenure.packable import MAX_DEPTH
from tests.unit.labels import label

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    10**400,
    -(10**400),
    0.0,
    -0.0,
    1.0,
    math.inf,
    -math.inf,
    5e-324,
    "",
    "grün 😀 \x00",
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    [],
    (),
    {},
    set(),
    frozenset(),
    [1, [2, (3, {4})]],
    (1, (2, [3])),
    {"a": {"b": [1]}, 1: 2, None: 3, 2.5: 4, b"k": 5, (1, "x"): 6, frozenset({1, (2,)}): 7, 2**70: 8},
    {(1, (2, frozenset({(3,)}))): {"x"}},
    {frozenset(), (), ("",)},
    [bytearray(), b"", ""],
]


def exactly(value: Any) -> str:
    """A text that differs where values or their types do, 1 and True and 1.0 and -0.0 included."""
    kind = type(value).__name__
    if isinstance(value, (set, frozenset)):
        return f"{kind}({','.join(sorted(map(exactly, value)))})"
    if isinstance(value, (list, tuple)):
        return f"{kind}({','.join(map(exactly, value))})"
    if isinstance(value, dict):
        return f"dict({','.join(exactly(key) + ':' + exactly(item) for key, item in value.items())})"
    if isinstance(value, float):
        return f"float{struct.pack('>d', value).hex()}"
    # A very long int has no decimal text.
    return f"{kind}{value:x}" if isinstance(value, int) else f"{kind}{value!r}"


@pytest.mark.parametrize("value", VALUES, ids=lambda value: label(value) if value != 10**400 else "large")
def test_round_trip(value: Any) -> None:
    assert exactly(codec.unpack_value(codec.pack_value(value))) == exactly(value)
    args, kwargs = codec.unpack_call(codec.pack_call((value, 1), {"x": value}))
    assert exactly(args) == exactly((value, 1))
    assert exactly(kwargs) == exactly({"x": value})


def test_nan_comes_back() -> None:
    assert math.isnan(codec.unpack_value(codec.pack_value(float("nan"))))


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "Packer", msgpack.fallback.Packer)
    monkeypatch.setattr(codec, "Unpacker", msgpack.fallback.Unpacker)
    monkeypatch.setattr(codec, "unpackb", msgpack.fallback.unpackb)
    monkeypatch.setattr(packing, "_idle", [])
    monkeypatch.setattr(packing, "_idle_plain", [])


def test_pure_python_writes_the_same_bytes(request: pytest.FixtureRequest) -> None:
    fast = [codec.pack_call((value,), {"k": value}) for value in VALUES]
    request.getfixturevalue("pure")
    assert [codec.pack_call((value,), {"k": value}) for value in VALUES] == fast


@pytest.mark.usefixtures("pure")
def test_pure_python_reads_all() -> None:
    for value in VALUES:
        assert exactly(codec.unpack_value(codec.pack_value(value))) == exactly(value)


class Color(enum.IntEnum):
    RED = 1


class OwnZone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def dst(self, when: dt.datetime | None) -> None:
        return None

    def tzname(self, when: dt.datetime | None) -> str:
        return "OWN"


@dataclass
class Parcel:
    grams: int


class Text(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


class Order:
    pass


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ([{"when": dt.datetime(2030, 1, 1, tzinfo=OwnZone())}], "args[1][0]['when']", ["OwnZone", "astimezone"]),
        (dt.time(1, tzinfo=OwnZone()), "args[1]", ["OwnZone"]),
        (dt.time(1, tzinfo=dt.timezone(dt.timedelta(0), "\ud800")), "args[1]", ["lone surrogate"]),
        ([Color.RED], "args[1][0]", ["test_codec:Color", "signature", "app.register(Color)"]),
        (Parcel(2), "args[1]", ["Parcel", "signature"]),
        (Text("x"), "args[1]", ["Text", "pass str()"]),
        (Point(1, 2), "args[1]", ["Point", "signature"]),
        (OrderedDict(a=1), "args[1]", ["OrderedDict", "pass dict()"]),
        (memoryview(b"x"), "args[1]", ["memoryview", "bytes()"]),
        ([1, Order()], "args[1][1]", ["Order", "inside the task"]),
        (Order, "args[1]", ["type"]),
        ({(1, "\udc80"): 1}, "args[1].keys()[<tuple key>][1]", ["lone surrogate", "index 0"]),
        ({10**5000: Order()}, "args[1][<int key>]", ["Order"]),
        ("ab\ud800", "args[1]", ["lone surrogate", "index 2"]),
        ({frozenset({Color.RED})}, "args[1]{member}{member}", ["Color"]),
    ],
)
def test_what_has_no_wire_form_is_named(value: Any, path: str, words: list[str]) -> None:
    pack: Callable[[], bytes]
    for pack in (partial(codec.pack_call, (0, value), {}), partial(codec.fingerprint, "t", (0, value), {})):
        with pytest.raises(NotSerializable) as caught:
            pack()
        text = str(caught.value)
        assert text.startswith(f"{path} "), text
        assert all(word in text for word in words), text
    with pytest.raises(NotSerializable, match=r"^kwargs\['opt'\]"):
        codec.pack_call((), {"opt": value})
    with pytest.raises(NotSerializable, match=r"^result"):
        codec.pack_value(value, "result")


def test_a_cycle_is_refused() -> None:
    rows: list[Any] = [1]
    rows.append({"rows": rows})
    with pytest.raises(NotSerializable, match=r"args\[0\]\[1\]\['rows'\] is a list that contains itself"):
        codec.pack_call((rows,), {})
    shared = [1]
    assert codec.unpack_value(codec.pack_value([shared, shared])) == [[1], [1]]


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: frozenset({v})])
def test_the_depth_is_limited(wrap: Any) -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    assert exactly(codec.unpack_value(codec.pack_value(value))) == exactly(value)
    assert codec.unpack_call(codec.pack_call((value,), {"k": value})) == ((value,), {"k": value})
    assert codec.fingerprint("t", (value,), {"k": value})
    with pytest.raises(NotSerializable, match="more than 100 containers"):
        codec.pack_value(wrap(value))
    with pytest.raises(NotSerializable, match="more than 100 containers"):
        codec.pack_call((), {"k": wrap(value)})


def test_a_failed_pack_leaves_nothing_behind() -> None:
    before = codec.pack_call((1, [2]), {})
    for _ in range(3):
        with pytest.raises(NotSerializable):
            codec.pack_call((1, ["a", {"b": Order()}]), {})
        with pytest.raises(NotSerializable):
            codec.pack_call(("x" * 1000, "\ud800"), {})
    assert codec.pack_call((1, [2]), {}) == before


# ------------------------------------------------------------------------------------------------------ fingerprints


def test_the_fingerprint_ignores_the_order_of_dicts_and_sets_only() -> None:
    def of(*args: Any, **kwargs: Any) -> bytes:
        return codec.fingerprint("t", args, kwargs)

    assert of({"a": 1, "b": [{"x": 1, "y": 2}]}) == of({"b": [{"y": 2, "x": 1}], "a": 1})
    assert of(a=1, b=2) == of(b=2, a=1)
    assert of({8, 0, "x"}) == of({"x", 0, 8})
    assert of({frozenset({8, 0})}) == of({frozenset({0, 8})})
    assert of([1, 2]) != of([2, 1])
    assert of({"a": {1, 2}}) != of({"a": frozenset({1, 2})})
    different = [of(), of(1), of(True), of(1.0), of("1"), of(b"1"), of([1]), of((1,)), of({1}), of(0.0), of(-0.0)]
    assert len(set(different)) == len(different)
    assert codec.fingerprint("t2", (1,), {}) != of(1)
    assert len(of(1)) == 16


def test_the_fingerprint_from_packed_bytes_is_the_same() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1, "a"), {}),
        ((1, [2, (3,)]), {}),
        (({"b": 1, "a": 2},), {}),
        ((1,), {"b": 1, "a": {3, 1}}),
        ((2**70, bytearray(b"x")), {"only": None}),
    ]
    for args, kwargs in calls:
        packed = codec.pack_call(args, kwargs)
        assert codec.fingerprint("t", args, kwargs, packed) == codec.fingerprint("t", args, kwargs)


def test_the_fingerprint_is_the_same_in_every_version() -> None:
    assert codec.fingerprint("shop.charge", (42, {"b": {2, 1}, "a": None}), {"x": (1,)}).hex() == FIXED


FIXED = "3348a34adff60b0bda1ab949365797bb"


# ------------------------------------------------------------------------------------------------------------ bodies


def message(**fields: Any) -> Message:
    args = codec.pack_call((42, 999), {})
    base: dict[str, Any] = {"id": "0" * 32, "task": "shop.charge", "args": args, "checksum": crc32(args)}
    return Message(**(base | {"fingerprint": b"f" * 16} | fields))


def test_a_body_comes_back() -> None:
    headers = {"trace": "00-ab", "n": 2**70, "tags": ("a", {"b"})}
    for one in (message(), message(timeout=2.5), message(headers=headers), message(headers=headers, timeout=1)):
        body = codec.decode_body(codec.encode_body(one))
        assert body == (1, one.args, one.checksum, one.headers, one.timeout)


def test_a_header_without_wire_form_is_named() -> None:
    with pytest.raises(NotSerializable, match=r"headers\['x'\]"):
        codec.encode_body(message(headers={"x": object()}))


@pytest.mark.parametrize(
    "body",
    [
        msgpack.packb([2, "all other", "fields differ"]),
        msgpack.packb([300]),
        msgpack.packb([2, *range(40)]),
        msgpack.packb([7, msgpack.ExtType(99, b"x")]),
        msgpack.packb([2**64 - 1]),
        b"\x95\x02\xc1",
    ],
)
def test_a_newer_body_says_so(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode_body(body)
    assert caught.value.version is not None
    assert caught.value.version > 1


GOOD = msgpack.packb([1, b"args", crc32(b"args"), None, None])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x95",
        b"\x90",
        b"\xc1",
        b"hello",
        GOOD[:-1],
        GOOD + b"\x00",
        msgpack.packb([0, b"args", crc32(b"args"), None, None]),
        msgpack.packb([-1, b"args", crc32(b"args"), None, None]),
        msgpack.packb([True, b"args", crc32(b"args"), None, None]),
        msgpack.packb({1: 2}),
        msgpack.packb([1, b"args", crc32(b"arg"), None, None]),
        msgpack.packb([1, "args", crc32(b"args"), None, None]),
        msgpack.packb([1, b"args", None, None, None]),
        msgpack.packb([1, b"args", crc32(b"args"), [], None]),
        msgpack.packb([1, b"args", crc32(b"args"), {1: 2}, None]),
        msgpack.packb([1, b"args", crc32(b"args"), None, "x"]),
        msgpack.packb([1, b"args", crc32(b"args"), None, -1]),
        msgpack.packb([1, b"args", crc32(b"args"), None, math.nan]),
        msgpack.packb([1, b"args", crc32(b"args"), None]),
        msgpack.packb([1, b"args", crc32(b"args"), None, None, None]),
        # A set around what looks like a body: it is one value, and no array of five.
        b"\x95\x01\xd4\x01s\x02\x03\x04",
    ],
)
def test_anything_else_is_no_body(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode_body(body)
    assert caught.value.version is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xd4\x01t",  # a mark alone
        b"\x92\x01\xd4\x01t",  # a mark that is not the first item
        b"\x81\xd4\x01t\x01",  # a mark as a key
        b"\x91\xd4\x01x",  # an unknown mark
        b"\x91\xd4\x63x",  # an unknown extension
        b"\x92\xd4\x01s\x90",  # a set of a list
        b"\x81\x90\x01",  # a list as a key
        b"\xa1\xff",  # no UTF-8
        b"\xa3\xed\xa0\x80",  # a surrogate in UTF-8's manner
        b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x91\xd7\xff" + bytes(8),
        b"\x81\x01\xc7\x0c\xff" + bytes(12),
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million items
        b"\x91" * 2000 + b"\xc0",  # deeper than any reader goes
        b"\xdd\x00\x10\x00\x00" * 1000 + bytes(10_000),  # a thousand arrays of a million items in each other
    ],
)
@pytest.mark.parametrize("pure_python", [False, True])
def test_hostile_bytes_raise_decode_error_only(data: bytes, pure_python: bool, request: pytest.FixtureRequest) -> None:
    if pure_python:
        request.getfixturevalue("pure")
    with pytest.raises(DecodeError):
        codec.unpack_value(data)
    with pytest.raises(DecodeError):
        codec.unpack_call(data)


@pytest.mark.parametrize("value", [1, [], [[], {}, 1], [{}, []], [[], {1: 2}], ((), {})])
def test_what_is_no_call_is_refused(value: Any) -> None:
    with pytest.raises(DecodeError):
        codec.unpack_call(codec.pack_value(value))


# ---------------------------------------------------------------------------------------------------------- failures


def test_a_failure_comes_back() -> None:
    failure = Failure("shop.NoStock", "none left", "Traceback ...")
    assert codec.unpack_failure(codec.pack_failure(failure)) == failure


BAD_FAILURES: list[bytes] = [b"", msgpack.packb([1]), msgpack.packb({"kind": 1}), msgpack.packb({1: "x"})]


@pytest.mark.parametrize("data", BAD_FAILURES)
def test_a_bad_failure_raises(data: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.unpack_failure(data)


def test_a_failure_of_a_newer_worker_keeps_what_is_known() -> None:
    assert codec.unpack_failure(msgpack.packb({"kind": "E", "more": "x"})) == Failure("E", "", "")
