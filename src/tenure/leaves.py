"""Values without items of their own that msgpack has no type for, as bytes and back; each has an extension code.

A reader may raise whatever its bytes lead to: the codec makes a DecodeError of it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, EnumType, Flag
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

ENUM = 10
"""The extension code of an Enum's member: its bytes are the class's path, NUL, and the member's name or value."""

# Held where freezegun, which swaps what a module calls `datetime`, does not reach: what comes back is the real class.
_REAL: tuple[type[datetime], type[date]] = (datetime, date)

_MOMENT = struct.Struct(">H5BIB")  # year, month, day, hour, minute, second, microsecond, flags
_TIME = struct.Struct(">3BIB")
_DATE = struct.Struct(">HBB")
_SPAN = struct.Struct(">iII")
_OFFSET = struct.Struct(">q")  # microseconds east of UTC

# The flags of a datetime or time: bit 0 is its fold, the others say what its zone is.
_FOLD, _FIXED, _NAMED, _IANA = 1, 2, 4, 8
_MAX_ZONE_CHARS = 255

DECLARE = "declare it in the function's signature (color: Color), or tell the app of it: app.register(Color)"


class NoWireForm(ValueError):
    """A value that has no wire form; the text goes on where `args[0] ` left off."""


class Enums:
    """The Enum classes that may travel, both ways; nothing else is ever looked up by a name from the wire."""

    def __init__(self, classes: Iterable[type[Enum]] = ()) -> None:
        self._paths: dict[type, str] = {kind: enum_path(kind) for kind in classes}
        self._classes: dict[str, type[Enum]] = {path: kind for kind, path in self._paths.items()}

    def with_(self, more: Enums) -> Enums:
        """Return both together."""
        return self if not more._paths else more if not self._paths else Enums((*self._paths, *more._paths))

    def pack(self, member: Enum) -> bytes:
        """Return a member's bytes; raises NoWireForm for a class that is not among these."""
        path = self._paths.get(type(member))
        if path is None:
            raise NoWireForm(
                f"is a member of the Enum {enum_path(type(member))}, which the task does not name; {DECLARE}"
            )
        if isinstance(member, Flag):  # a sum of flags has a value, and not always a name
            return b"%b\0v%b" % (path.encode(), int_bytes(member.value))
        return b"%b\0n%b" % (path.encode(), member.name.encode())

    def read(self, data: bytes) -> Enum:
        """Return the member that the bytes name; raises LookupError or ValueError."""
        head, _, rest = data.partition(b"\0")
        path = head.decode()
        kind = self._classes.get(path)
        if kind is None:
            raise LookupError(
                f"it holds a member of the Enum {path[:200]}, which the task's hints do not name: {DECLARE}"
            )
        if rest[:1] == b"v" and issubclass(kind, Flag):
            return kind(int_from(rest[1:]))
        name = rest[1:].decode()
        if rest[:1] != b"n" or name not in kind.__members__:
            raise LookupError(f"the Enum {path} has no member {name[:200]!r} here")
        return kind.__members__[name]


class ShownEnum(NamedTuple):
    """A member of an Enum by its name alone, for a reader that may not import its class."""

    text: str

    def __repr__(self) -> str:
        return self.text


class ShownEnums(Enums):
    """Reads members of any Enum class as their names."""

    def read(self, data: bytes) -> Any:
        """Return a `ShownEnum`, such as `Color.RED` or, for flags, `Mode(3)`."""
        path, _, rest = data.partition(b"\0")
        name = path.decode().rpartition(":")[2]
        return ShownEnum(f"{name}({int_from(rest[1:])})" if rest[:1] == b"v" else f"{name}.{rest[1:].decode()}")


NO_ENUMS = Enums()


def enum_path(kind: type) -> str:
    """Return `module:qualname` of a class, as another process would import it."""
    module = kind.__module__
    if module == "__main__":
        spec = getattr(sys.modules.get(module), "__spec__", None)
        module = module if spec is None else spec.name
    return f"{module}:{kind.__qualname__}"


def int_bytes(value: int) -> bytes:
    """Return the shortest two's complement that has room for the sign."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def int_from(data: bytes) -> int:
    """Read what `int_bytes` wrote."""
    return int.from_bytes(data, "big", signed=True)


# -------------------------------------------------------------------------------------------------------- zones, times


def _zone_bytes(zone: tzinfo | None) -> tuple[int, bytes]:
    """Return a zone's flags and bytes; raises NoWireForm."""
    kind = type(zone)
    if zone is None:
        return 0, b""
    if isinstance(zone, ZoneInfo) and kind is ZoneInfo and zone.key is not None:
        return _IANA, zone.key.encode()
    if not isinstance(zone, timezone):
        raise NoWireForm(
            f"has a time zone of type {kind.__module__}.{kind.__qualname__}, which has no wire form; "
            "use a zoneinfo.ZoneInfo with a name or a datetime.timezone: value.astimezone(ZoneInfo('Europe/Paris'))"
        )
    # A name of its own is no part of what two time zones are compared by, but tzname() gives it.
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    flags = _FIXED | _NAMED if name else _FIXED
    return flags, _OFFSET.pack(offset // timedelta.resolution) + (name[0].encode() if name else b"")


def _zone_from(flags: int, data: bytes) -> tzinfo | None:
    if flags == 0 and not data:
        return None
    if flags == _IANA and 0 < len(data) <= _MAX_ZONE_CHARS and data.isascii():
        return ZoneInfo(data.decode())
    if flags not in (_FIXED, _FIXED | _NAMED):
        raise ValueError("a time zone of an unknown kind")
    offset = timedelta(microseconds=_OFFSET.unpack_from(data)[0])
    name = data[_OFFSET.size :]
    if flags & _NAMED:
        return timezone(offset, name.decode())
    if name:
        raise ValueError("a time zone with more bytes than it has")
    return timezone(offset)


def _datetime_bytes(value: datetime) -> bytes:
    flags, zone = _zone_bytes(value.tzinfo)
    if flags == _IANA:
        # With the offset that held where it was made: the instant stays, should the other side's rules differ.
        offset = value.utcoffset() or timedelta()
        zone = _OFFSET.pack(offset // timedelta.resolution) + zone
    day = (value.year, value.month, value.day)
    return _MOMENT.pack(*day, value.hour, value.minute, value.second, value.microsecond, flags | value.fold) + zone


def _datetime_from(data: bytes) -> datetime:
    year, month, day, hour, minute, second, micro, flags = _MOMENT.unpack_from(data)
    rest = data[_MOMENT.size :]
    fold, flags = flags & _FOLD, flags & ~_FOLD
    if flags != _IANA:
        zone = _zone_from(flags, rest)
        return _REAL[0](year, month, day, hour, minute, second, micro, zone, fold=fold)
    zone = _zone_from(flags, rest[_OFFSET.size :])
    made = _REAL[0](year, month, day, hour, minute, second, micro, zone, fold=fold)
    offset = timedelta(microseconds=_OFFSET.unpack_from(rest)[0])
    return made if made.utcoffset() == offset else made.replace(tzinfo=timezone(offset)).astimezone(zone)


def _time_bytes(value: time) -> bytes:
    flags, zone = _zone_bytes(value.tzinfo)
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond, flags | value.fold) + zone


def _time_from(data: bytes) -> time:
    hour, minute, second, micro, flags = _TIME.unpack_from(data)
    return time(hour, minute, second, micro, _zone_from(flags & ~_FOLD, data[_TIME.size :]), fold=flags & _FOLD)


def _decimal_from(data: bytes) -> Decimal:
    text = data.decode("ascii")
    value = Decimal(text)
    if str(value) != text:  # a context that traps nothing makes NaN of what is no number
        raise ValueError("no Decimal as it is written here")
    return value


def _span_bytes(value: timedelta) -> bytes:
    return _SPAN.pack(value.days, value.seconds, value.microseconds)


LEAVES: dict[type, tuple[int, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    # type: extension code, to bytes, from bytes; a code is never given to another type
    int: (2, int_bytes, int_from),  # only what has no place in 64 bits
    bytearray: (3, bytes, bytearray),
    datetime: (4, _datetime_bytes, _datetime_from),
    date: (5, lambda value: _DATE.pack(value.year, value.month, value.day), lambda data: _REAL[1](*_DATE.unpack(data))),
    time: (6, _time_bytes, _time_from),
    timedelta: (7, _span_bytes, lambda data: timedelta(*_SPAN.unpack(data))),
    Decimal: (8, lambda value: str(value).encode(), _decimal_from),
    UUID: (9, lambda value: value.bytes, lambda data: UUID(bytes=data)),
}
READERS = {code: reader for code, _, reader in LEAVES.values()}


def leaf(value: Any, enums: Enums) -> tuple[int, bytes]:
    """Return a value's extension code and bytes; raises NoWireForm, with an empty text where its type has none."""
    kind = type(value)
    entry = LEAVES.get(kind)
    if entry is None and kind.__module__ == "freezegun.api":  # the frozen clock's datetime and date
        entry = LEAVES.get(kind.__mro__[1])
    if entry is not None:
        return entry[0], entry[1](value)
    if isinstance(kind, EnumType):
        return ENUM, enums.pack(value)
    raise NoWireForm


def read_leaf(code: int, data: bytes, enums: Enums) -> Any:
    """Return the value that `leaf` wrote; raises LookupError for an unknown code, and what the readers raise."""
    if code == ENUM:
        return enums.read(data)
    reader = READERS.get(code)
    if reader is None:
        raise LookupError(f"it holds a value of extension type {code}, which this version does not know")
    return reader(data)
