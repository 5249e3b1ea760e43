"""Arguments, results and messages as bytes (msgpack), strictly: what went in comes out with its exact type.

msgpack's own types carry None, bool, int (64 bits), float, str, bytes, list and dict.  Two kinds of extension carry
the rest.  A *container* that msgpack does not know is an array whose first item is a mark (extension 1, one byte:
`t` tuple, `s` set, `f` frozenset), so that reading never recurses.  A *leaf* is one extension with the value's bytes;
`leaves` has them.  Subclasses are refused, because they would come back as their base.  A member of an Enum travels
where its class is among the `enums` that both ends are given; nothing is imported by a name from the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from struct import error as StructError  # noqa: N812  (struct names its class so)
from typing import Any, Literal, NamedTuple, NoReturn
from zlib import compress, crc32, decompressobj
from zlib import error as ZlibError  # noqa: N812  (zlib names its class so)

from msgpack import Timestamp, Unpacker, unpackb
from msgpack.exceptions import UnpackException

from tenure.errors import DecodeError, NotSerializable
from tenure.leaves import NO_ENUMS, Enums, ShownEnums, read_leaf
from tenure.message import DEFLATED, VERSION, Message
from tenure.outcome import Failure, Link, escape, shorten
from tenure.packable import SCALARS, find_fault
from tenure.packing import MARK, MARK_BYTES, canonical, packed_plain, packed_walk, write, write_call

_STR = frozenset({str})
_NO_KWARGS: dict[str, Any] = {}
_MADE_FROM: dict[bytes, Callable[[list[Any]], Any]] = {b"t": tuple, b"s": set, b"f": frozenset}
_TIMESTAMPS = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")
_TIMESTAMP_TYPE = b"\xff"
"""Stands in all of these; most values have it nowhere, so this one look is nearly always the only one."""
_NOT_STORED = b"\x93\xd4\x01n"
"""How a result begins that was not kept: an array of a mark that no value has, a kind and a text."""
_KINDS: tuple[WhyNotStored, ...] = ("not storable", "too large", "disabled")
_MAX_WHY_CHARS = 1000
_PROVE_FROM = 4096

MAX_INFLATED = 64 * 1024 * 1024
"""Bytes: what compressed arguments may become at most, whatever they claim."""
_BAD_LEAF = (ValueError, TypeError, ArithmeticError, LookupError, OSError, ImportError, StructError)

WhyNotStored = Literal["not storable", "too large", "disabled"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A result that was kept."""

    value: Any


@dataclass(frozen=True, slots=True)
class NotStored:
    """A job that is done and whose result was not kept; `why` says more in a sentence."""

    kind: WhyNotStored
    why: str


class Body(NamedTuple):
    """A message's packed part, read back; `timeout` is seconds."""

    version: int
    args: bytes
    checksum: int
    headers: Mapping[str, Any]
    timeout: float | None


# ---------------------------------------------------------------------------------------------------- values out


def pack_call(args: tuple[Any, ...], kwargs: Mapping[str, Any], enums: Enums = NO_ENUMS) -> bytes:
    """Pack a call's arguments; raises NotSerializable naming the value, such as `args[1]['when']`."""
    plain = SCALARS.issuperset(map(type, args)) and (not kwargs or SCALARS.issuperset(map(type, kwargs.values())))
    try:
        return packed_plain((args, kwargs)) if plain else packed_walk(write_call, (args, kwargs), enums)
    except ValueError:
        _raise_fault(enums, ("args", args), ("kwargs", kwargs))


def pack_scalar_call(task: str, args: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """Return what `pack_call` and `fingerprint` do for a call whose arguments are all of the types in `SCALARS`."""
    try:
        packed = packed_plain((args, _NO_KWARGS))
    except ValueError:
        _raise_fault(NO_ENUMS, ("args", args))
    return packed, _digest(task, packed)


def pack_value(value: Any, path: str = "value", enums: Enums = NO_ENUMS) -> bytes:
    """Pack one value, a task's result for instance; raises NotSerializable, whose text begins with `path`."""
    try:
        return packed_plain(value) if type(value) in SCALARS else packed_walk(write, value, enums)
    except ValueError:
        _raise_fault(enums, (path, value))


def pack_not_stored(kind: WhyNotStored, why: str) -> bytes:
    """Pack what stands in the place of a result that is not kept."""
    return _NOT_STORED + packed_plain(kind) + packed_plain(shorten(escape(why), _MAX_WHY_CHARS))


def deflate(args: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return packed arguments compressed, and the header that says so; as they are where that gains nothing."""
    small = compress(args, 6) if len(args) <= MAX_INFLATED else args
    return (small, {DEFLATED: len(args)}) if len(small) < len(args) else (args, {})


def pack_failure(failure: Failure) -> bytes:
    """Pack a failure as a map of its fields."""
    fields: dict[str, Any] = {"kind": failure.kind, "text": failure.text, "traceback": failure.traceback}
    if failure.notes:
        fields["notes"] = failure.notes
    if failure.chain:
        fields["chain"] = failure.chain
    if failure.args is not None:
        fields["args"] = failure.args
    return packed_plain(fields)


def encode_body(message: Message) -> bytes:
    """Pack what the broker stores but does not read: version, arguments, their checksum, headers and timeout."""
    if not message.headers:
        return packed_plain((message.version, message.args, message.checksum, None, message.timeout))
    headers = dict(message.headers)
    try:
        return packed_walk(write, [message.version, message.args, message.checksum, headers, message.timeout], NO_ENUMS)
    except ValueError:
        _raise_fault(NO_ENUMS, ("headers", headers))


def fingerprint(
    task: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    packed: bytes | None = None,
    enums: Enums = NO_ENUMS,
) -> bytes:
    """Return 16 bytes that are equal for two calls exactly when task and arguments are.

    The arguments are those bound to the signature, defaults filled in.  `packed` may be given when it is
    `pack_call(args, kwargs)`: it is used as it stands if nothing in it has an order of its own.
    """
    if packed is None or not _orderless(args, kwargs):
        try:
            packed = canonical([list(args), dict(kwargs)], -2, enums)
        except ValueError:
            _raise_fault(enums, ("args", args), ("kwargs", kwargs))
    return _digest(task, packed)


def _digest(task: str, packed: bytes) -> bytes:
    return blake2b(b"%b\0%b" % (task.encode(), packed), digest_size=16).digest()


def _orderless(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if kwargs and (len(kwargs) > 1 or not SCALARS.issuperset(map(type, kwargs.values()))):
        return False
    return SCALARS.issuperset(map(type, args))


# --------------------------------------------------------------------------------------------- what has no wire form


def _raise_fault(enums: Enums, *roots: tuple[str, Any]) -> NoReturn:
    """Raise NotSerializable for the first value under the roots that has no wire form."""
    for path, root in roots:
        # The arguments themselves are no value: they lie at depth -1 so that each of them lies at 0.
        inner = -1 if path in ("args", "kwargs", "headers") else 0
        fault = find_fault(root, path, enums, inner)
        if fault is not None:
            raise NotSerializable(fault) from None
    raise NotSerializable(f"{roots[0][0]} changed while it was packed, or is above 4 GiB; pass it in smaller parts")


# ----------------------------------------------------------------------------------------------------- values back


def unpack_call(data: bytes, enums: Enums = NO_ENUMS) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that `pack_call` packed; raises DecodeError and nothing else."""
    call = unpack_value(data, enums)
    if type(call) is not list or len(call) != 2:
        raise DecodeError("the arguments are no pair of a list and a map")
    args, kwargs = call
    if type(args) is not list or type(kwargs) is not dict or not _STR.issuperset(map(type, kwargs)):
        raise DecodeError("the arguments are no pair of a list and a map with names for keys")
    return tuple(args), kwargs


def show_call(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments in a message's body for a person to look at; raises DecodeError.

    Objects stay the dicts that they travel as, and members of an Enum are shown by name: nothing of the task is needed.
    """
    message = decode_body(body)
    return unpack_call(plain_args(message.args, message.headers), ShownEnums())


def plain_args(args: bytes, headers: Mapping[str, Any]) -> bytes:
    """Return a message's packed arguments as they were before `deflate`; raises DecodeError."""
    size = headers.get(DEFLATED) if headers else None
    if size is None:
        return args
    if type(size) is not int or not 0 <= size <= MAX_INFLATED:
        raise DecodeError(
            f"the compressed arguments claim a size of {str(size)[:40]}, the limit is {MAX_INFLATED} bytes"
        )
    inflate = decompressobj()
    try:
        data = inflate.decompress(args, size + 1)
    except ZlibError as error:
        raise DecodeError(f"the compressed arguments cannot be read: {error}") from None
    if len(data) != size or not inflate.eof or inflate.unused_data:
        raise DecodeError("the compressed arguments have another size than they claim")
    return data


def unpack_value(data: bytes, enums: Enums = NO_ENUMS) -> Any:
    """Return the value that `pack_value` packed; raises DecodeError and nothing else."""
    try:
        if len(data) > _PROVE_FROM:
            _prove_complete(data)
        if MARK_BYTES in data:
            value = _Reader(enums).read(data)
        else:
            hook = _read_plain_leaf if enums is NO_ENUMS else partial(_read_leaf, enums)
            value = unpackb(data, ext_hook=hook, strict_map_key=False)
    except DecodeError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError, UnpackException) as error:
        raise DecodeError(f"no msgpack value of this version: {type(error).__name__}: {error}"[:300]) from None
    if _TIMESTAMP_TYPE in data and any(mark in data for mark in _TIMESTAMPS) and _holds_timestamp(value):
        raise DecodeError("it holds a msgpack timestamp, which this version never writes")
    return value


def unpack_result(data: bytes, enums: Enums = NO_ENUMS) -> Stored | NotStored:
    """Return what `pack_value` or `pack_not_stored` packed; raises DecodeError and nothing else."""
    if not data.startswith(_NOT_STORED):
        return Stored(unpack_value(data, enums))
    fields = unpack_value(b"\x92" + data[len(_NOT_STORED) :])
    kind = next((kind for kind in _KINDS if kind == fields[0]), None)
    if kind is None or type(fields[1]) is not str:
        raise DecodeError("the result was not kept, in a manner that this version does not know")
    return NotStored(kind, fields[1])


def unpack_failure(data: bytes) -> Failure:
    """Return the failure that `pack_failure` packed; raises DecodeError and nothing else."""
    fields = unpack_value(data)
    if type(fields) is not dict or not _STR.issuperset(map(type, fields)):
        raise DecodeError("the failure is no map of named fields")
    texts = [fields.get(name, "") for name in ("kind", "text", "traceback")]
    notes, chain_, args = (fields.get(name, []) for name in ("notes", "chain", "args"))
    if not _STR.issuperset(map(type, texts)) or not type(notes) is type(chain_) is type(args) is list:
        raise DecodeError("the failure is no map of texts and lists")
    if not _STR.issuperset(map(type, notes)) or not SCALARS.issuperset(map(type, args)):
        raise DecodeError("the failure's notes are no texts, or its args no plain values")
    return Failure(
        texts[0], texts[1], texts[2], tuple(notes), tuple(map(_link, chain_)), tuple(args) if "args" in fields else None
    )


def _link(fields: Any) -> Link:
    if type(fields) is not list or list(map(type, fields)) != [str, int, str, str]:
        raise DecodeError("a link in the failure's chain is no kind of link, depth, class and text")
    return Link(*fields)


def decode_body(body: bytes) -> Body:
    """Read a message's body; raises DecodeError, with `version` set when the body is newer than this reads."""
    version = _version_of(body)
    if version > VERSION:
        raise DecodeError(f"the message has layout {version}, this worker reads up to {VERSION}", version=version)
    fields = unpack_value(body)
    if len(fields) != 5:
        raise DecodeError(f"the message has {len(fields)} fields, layout {VERSION} has 5")
    _, args, checksum, headers, timeout = fields
    if type(args) is not bytes or type(checksum) is not int:
        raise DecodeError("the message's arguments are no bytes with a checksum")
    if crc32(args) != checksum:
        raise DecodeError("corrupt")
    if headers is not None and (type(headers) is not dict or not _STR.issuperset(map(type, headers))):
        raise DecodeError("the message's headers are no map with names for keys")
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < float("inf")):
        raise DecodeError("the message's timeout is no number of seconds above 0")
    return Body(version, args, checksum, headers or {}, timeout)


def _version_of(body: bytes) -> int:
    """Read the first field alone, since all others may be spelled in a way that only newer versions know."""
    if len(body) > 1 and 0x91 <= body[0] <= 0x9F and 0 < body[1] < 0x80:
        return body[1]
    try:
        reader = Unpacker(strict_map_key=False)
        reader.feed(body[:16])
        version = reader.unpack() if reader.read_array_header() else None
    except (ValueError, TypeError, UnpackException):
        version = None
    if type(version) is not int or version < 1:
        raise DecodeError("the message does not begin with the number of its layout")
    return version


def _prove_complete(data: bytes) -> None:
    """Look that every length in the data is true, without making anything.

    msgpack makes an array as long as its header claims before it reads the items, so that nested false claims
    would take memory a thousand times the data's size.
    """
    scout = Unpacker(max_buffer_size=len(data))
    scout.feed(data)
    scout.skip()


def _read_leaf(enums: Enums, code: int, data: bytes) -> Any:
    try:
        return read_leaf(code, bytes(data), enums)
    except LookupError as error:
        raise DecodeError(str(error)[:500]) from None
    except _BAD_LEAF as error:
        what = f"it holds a value of extension type {code} that cannot be read here"
        raise DecodeError(f"{what}: {type(error).__name__}: {error}"[:500]) from None


_read_plain_leaf = partial(_read_leaf, NO_ENUMS)


class _Mark(NamedTuple):
    make: Callable[[list[Any]], Any]


class _Reader:
    """Reads data with marked containers; each mark has to be the first item of an array, and nothing else."""

    def __init__(self, enums: Enums) -> None:
        self._open = 0
        self._enums = enums

    def read(self, data: bytes) -> Any:
        value = unpackb(data, ext_hook=self._ext, list_hook=self._array, strict_map_key=False)
        if self._open:
            raise DecodeError("the mark of a container stands where none can be")
        return value

    def _ext(self, code: int, data: bytes) -> Any:
        if code != MARK:
            return _read_leaf(self._enums, code, data)
        make = _MADE_FROM.get(bytes(data))
        if make is None:
            raise DecodeError("it holds a container of a kind that this version does not know")
        self._open += 1
        return _Mark(make)

    def _array(self, items: list[Any]) -> Any:
        if not items or type(items[0]) is not _Mark:
            return items
        self._open -= 1
        make = items[0].make
        del items[0]
        return make(items)


def _holds_timestamp(value: Any) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if type(value) is Timestamp:
            return True
        if type(value) is dict:
            waiting.extend(chain(value, value.values()))
        elif type(value) in (list, tuple, set, frozenset):
            waiting.extend(value)
    return False
