"""Times, zones, numbers and Enum members on the wire; results that are not kept; compressed arguments."""

from __future__ import annotations

import datetime as dt
import enum
import io
import struct
import zlib
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from freezegun import freeze_time

from tenure import codec
from tenure.errors import DecodeError, NotSerializable
from tenure.leaves import LEAVES, Enums
from tenure.message import Message
from tests.unit.labels import label

PARIS = ZoneInfo("Europe/Paris")
BENT = dt.timezone(-dt.timedelta(hours=5, minutes=53, seconds=28, microseconds=7))

MOMENTS = [
    dt.datetime(1, 1, 1),  # noqa: DTZ001  (naive ones have to stay naive)
    dt.datetime.max,  # noqa: DTZ901
    dt.datetime(2026, 10, 25, 2, 30, 15, 999_999, fold=1),  # noqa: DTZ001
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=23, minutes=59))),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, BENT),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
    dt.datetime(2026, 3, 29, 2, 30, tzinfo=PARIS),  # this hour there is not
    dt.datetime(2026, 3, 29, 2, 30, tzinfo=PARIS, fold=1),
    dt.datetime(1, 1, 1, tzinfo=PARIS),
    dt.datetime(9999, 12, 31, tzinfo=ZoneInfo("America/New_York")),
    dt.datetime(1880, 5, 5, tzinfo=ZoneInfo("Asia/Kolkata")),
]
OTHERS: list[Any] = [
    dt.date.min,
    dt.date.max,
    dt.date(2024, 2, 29),
    dt.time(),
    dt.time(23, 59, 59, 999_999, fold=1),
    dt.time(1, 2, tzinfo=BENT),
    dt.time(1, 2, tzinfo=PARIS),
    dt.timedelta.min,
    dt.timedelta.max,
    dt.timedelta(microseconds=-1),
    *map(Decimal, ["0", "-0", "1.10", "1E+5", "0E-10", "-1E-400", "Infinity", "-Infinity", "NaN", "-NaN12", "sNaN7"]),
    Decimal(10**300) / 7,
    UUID(int=0),
    UUID("efe19af6-872d-45fc-8d4d-084c6b1d8535"),
    UUID(int=2**128 - 1),
]


def parts(value: Any) -> Any:
    """A form in which equal means: the same in all that can be seen of a value."""
    if isinstance(value, dt.datetime | dt.time):
        zone = value.tzinfo
        offset, name = value.utcoffset(), value.tzname()
        return type(value), type(zone), getattr(zone, "key", None), str(value), value.fold, offset, name
    return type(value), str(value), repr(value)


@pytest.mark.parametrize("value", [*MOMENTS, *OTHERS], ids=label)
def test_leaves_come_back(value: Any) -> None:
    assert parts(codec.unpack_value(codec.pack_value(value))) == parts(value)
    (back,), kwargs = codec.unpack_call(codec.pack_call(([value],), {"x": (value,)}))
    assert [parts(back[0]), parts(kwargs["x"][0])] == [parts(value)] * 2
    assert codec.fingerprint("t", (value,), {}) == codec.fingerprint(
        "t", (codec.unpack_value(codec.pack_value(value)),), {}
    )


def test_an_instant_stays_where_the_zone_has_other_rules_on_this_side() -> None:
    packed = bytearray(codec.pack_value(dt.datetime(2026, 7, 1, 12, tzinfo=PARIS)))
    at = packed.index(b"Europe/Paris") - 8
    packed[at : at + 8] = (3_600_000_000).to_bytes(8, "big")  # as if there were no summer time where it was made
    back = codec.unpack_value(bytes(packed))
    assert back == dt.datetime(2026, 7, 1, 11, tzinfo=dt.UTC)
    assert (back.tzinfo, back.hour) == (PARIS, 13)


def test_a_zone_that_only_a_file_names_is_refused() -> None:
    counts = struct.pack(">6L", 0, 0, 0, 0, 1, 4)
    zone = ZoneInfo.from_file(io.BytesIO(b"TZif" + bytes(16) + counts + bytes(6) + b"UTC\0"))
    with pytest.raises(NotSerializable, match=r"args\[0\] has a time zone of type zoneinfo.ZoneInfo"):
        codec.pack_call((dt.datetime(2026, 1, 1, tzinfo=zone),), {})


def test_a_context_of_decimal_changes_nothing() -> None:
    value = Decimal("1.23456789012345678901234567890")
    with localcontext(Context(prec=2, rounding=ROUND_CEILING, traps=[])):
        back = codec.unpack_value(codec.pack_value(value))
        with pytest.raises(DecodeError):
            codec.unpack_value(msgpack.packb(msgpack.ExtType(LEAVES[Decimal][0], b"no number")))
    assert str(back) == str(value)


def test_the_frozen_clock_of_tests_travels_as_the_real_classes() -> None:
    with freeze_time("2026-05-05 10:00:00"):
        now, today = dt.datetime.now(dt.UTC), dt.date.today()  # noqa: DTZ011
        back = codec.unpack_value(codec.pack_value([now, today]))
    assert [type(value) for value in back] == [type(MOMENTS[0]), type(OTHERS[0])]
    assert back == [now, today]
    assert codec.unpack_value(codec.pack_value(MOMENTS[0])) == MOMENTS[0]


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (4, b""),
        (4, bytes(12)),  # month 0
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x10"),  # an unknown flag
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00more"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + bytes(8) + b"Nowhere/City"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + bytes(8) + b"../../etc/passwd"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + bytes(8) + b"Europe"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + bytes(8) + b"/etc/localtime"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + bytes(8) + b"a\x00b"),
        (4, b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x02" + b"\x7f" * 8),
        (
            4,
            b"\x00\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x08" + b"\x00\x00\x00\x0c\x00\x00\x00\x00" + b"Europe/Paris",
        ),
        (5, bytes(4)),
        (6, b"\x18\x00\x00\x00\x00\x00\x00\x00"),
        (7, b"\x7f" * 12),
        (8, b"1_0"),
        (8, b"\xff"),
        (8, b" 1"),
        (9, bytes(15)),
        (10, b"x:Y\0nZ"),
        (10, b""),
        (10, b"\xff\0n"),
        (11, b""),
    ],
)
def test_hostile_leaves_raise_decode_error_only(code: int, data: bytes) -> None:
    for value in (msgpack.ExtType(code, data), [msgpack.ExtType(1, b"s"), msgpack.ExtType(code, data)]):
        with pytest.raises(DecodeError):
            codec.unpack_value(msgpack.packb(value))


def test_a_signaling_nan_as_a_key_from_the_wire_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        codec.unpack_value(msgpack.packb({msgpack.ExtType(8, b"sNaN"): 1}))


# ------------------------------------------------------------------------------------------------------------- enums


class Color(enum.Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796  (an alias)
    ODD = object()


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


KNOWN = Enums([Color, Level, Word, Mode])
MEMBERS: list[enum.Enum] = [
    Color.RED,
    Color.CRIMSON,
    Color.ODD,
    Level.LOW,
    Word.YES,
    Mode.READ,
    Mode.READ | Mode.WRITE,
    Mode(0),
]


@pytest.mark.parametrize("member", MEMBERS, ids=label)
def test_members_of_known_enums_come_back(member: Any) -> None:
    value = {member: [member, (member,), {member}]}
    assert codec.unpack_value(codec.pack_value(value, "value", KNOWN), KNOWN) == value
    (back,), _ = codec.unpack_call(codec.pack_call((member,), {}, KNOWN), KNOWN)
    assert back is member or (back == member and type(back) is type(member))
    assert codec.fingerprint("t", (member,), {}, None, KNOWN) != codec.fingerprint(
        "t", (member.value,) if member is not Color.ODD else (), {}
    )
    with pytest.raises(NotSerializable, match=r"args\[0\] is a member of the Enum .*app.register"):
        codec.pack_call((member,), {})
    with pytest.raises(DecodeError, match=r"do not name: declare it"):
        codec.unpack_call(codec.pack_call((member,), {}, KNOWN))


def test_a_member_that_is_gone_is_a_decode_error() -> None:
    packed = codec.pack_value(Color.RED, "value", KNOWN).replace(b"nRED", b"nBAD")
    with pytest.raises(DecodeError, match="has no member 'BAD'"):
        codec.unpack_value(packed, KNOWN)


# ----------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("kind", ["not storable", "too large", "disabled"])
def test_a_result_that_is_not_kept_says_so(kind: codec.WhyNotStored) -> None:
    assert codec.unpack_result(codec.pack_not_stored(kind, "a lock\ud800")) == codec.NotStored(kind, "a lock\\ud800")
    long = codec.unpack_result(codec.pack_not_stored(kind, "x" * 50_000))
    assert isinstance(long, codec.NotStored)
    assert len(long.why) < 1100


def test_no_value_can_be_taken_for_a_result_that_is_not_kept() -> None:
    for value in (None, [], ("not storable", "x"), ["n", "disabled", "x"], {"n"}):
        assert codec.unpack_result(codec.pack_value(value)) == codec.Stored(value)
    with pytest.raises(DecodeError):
        codec.unpack_value(codec.pack_not_stored("disabled", "x"))


@pytest.mark.parametrize("rest", [b"", b"\x01\x02", b"\xa1x\xa1x", b"\xa8disabled\x01", b"\xa8disabled\xa1x\xa1x"])
def test_a_hostile_result_raises_decode_error(rest: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.unpack_result(b"\x93\xd4\x01n" + rest)


# ------------------------------------------------------------------------------------------------------- compression


def test_a_person_sees_a_call_without_its_classes() -> None:
    args, headers = codec.deflate(codec.pack_call((Color.RED, Mode.READ | Mode.WRITE, {"a": "x" * 100}), {}, KNOWN))
    message = Message("0" * 32, "t", args, zlib.crc32(args), b"", headers=headers)
    assert f"{codec.show_call(codec.encode_body(message))!r:.34}" == "((Color.RED, Mode(3), {'a': 'xxxxx"
    assert headers


def test_compressed_arguments_come_back() -> None:
    packed = codec.pack_call(("x" * 100_000,), {})
    small, headers = codec.deflate(packed)
    assert len(small) < 1000
    assert codec.plain_args(small, headers) == packed
    assert codec.plain_args(packed, {}) == packed


def test_what_does_not_shrink_stays_as_it_is() -> None:
    packed = codec.pack_call((b"\x00",), {})
    assert codec.deflate(packed) == (packed, {})


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (zlib.compress(bytes(100)), 99),
        (zlib.compress(bytes(100)), 101),
        (zlib.compress(bytes(100)), -1),
        (zlib.compress(bytes(100)), "100"),
        (zlib.compress(bytes(100)), True),
        (zlib.compress(bytes(100)), 2**40),
        (zlib.compress(bytes(100)) + b"more", 100),
        (zlib.compress(bytes(100))[:-2], 100),
        (b"no zlib at all", 100),
        (zlib.compress(bytes(10_000_000)), 100),  # a bomb is read up to what it claims
    ],
)
def test_hostile_compression_raises_decode_error(data: bytes, size: object) -> None:
    with pytest.raises(DecodeError, match="compressed arguments"):
        codec.plain_args(data, {"deflated": size})
