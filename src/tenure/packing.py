"""Writes values as msgpack: the same bytes for the same value, from msgpack's C and its pure-Python packer.

What has no wire form raises ValueError here; `packable.find_fault` finds where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from msgpack import ExtType, Packer

from tenure.leaves import Enums, int_bytes, leaf
from tenure.packable import MARKS, MAX_DEPTH, SCALARS

MARK = 1
"""The extension code of a mark: the first item of an array that is a tuple or a set."""

MARK_BYTES = b"\xd4\x01"

_idle: list[Packer] = []
"""Packers at rest.  A packer is popped for one use, which neither a thread nor a signal handler can interrupt."""
_idle_plain: list[Packer] = []
"""Others, which give their bytes and are empty again in one step, for values that are written in one step."""

_MAX_KEPT_BYTES = 1024 * 1024


class _Unfit(ValueError):
    """Something in a value has no wire form."""


def _take_packer() -> Packer:
    try:
        return _idle.pop()
    except IndexError:
        return Packer(autoreset=False, default=_large_int)


def _finish(packer: Packer) -> bytes:
    """Return the packed bytes and put the packer back; one that failed, or grew, is left to the collector."""
    data: bytes = packer.bytes()
    packer.reset()
    if len(data) < _MAX_KEPT_BYTES:
        _idle.append(packer)
    return data


def packed_plain(value: Any) -> bytes:
    """Pack a value that is known to hold scalars only; tuples around them are written as arrays."""
    try:
        packer = _idle_plain.pop()
    except IndexError:
        packer = Packer(default=_large_int)
    data: bytes = packer.pack(value)
    if len(data) < _MAX_KEPT_BYTES:
        _idle_plain.append(packer)
    return data


def packed_walk(writer: Callable[[Packer, Any, int, Enums], None], value: Any, enums: Enums) -> bytes:
    """Pack any value with one of the writers below."""
    packer = _take_packer()
    writer(packer, value, 0, enums)
    return _finish(packer)


def _large_int(value: int) -> ExtType:
    """Carry what msgpack has no type for where all types are known: an int of more than 64 bits."""
    return ExtType(2, int_bytes(value))


def write_call(packer: Packer, call: tuple[tuple[Any, ...], Mapping[str, Any]], depth: int, enums: Enums) -> None:
    """Write a call's arguments, a pair of a list and a map."""
    args, kwargs = call
    packer.pack_array_header(2)
    packer.pack_array_header(len(args))
    for item in args:
        write(packer, item, depth, enums)
    _write_pairs(packer, list(kwargs.items()), depth, enums)


def write(packer: Packer, value: Any, depth: int, enums: Enums) -> None:
    """Write one value; `depth` counts the containers around it."""
    kind = type(value)
    if kind in SCALARS:
        packer.pack(value)
    elif depth >= MAX_DEPTH:
        raise _Unfit
    elif kind is list:
        _write_items(packer, value.copy(), depth + 1, enums)
    elif kind is dict:
        _write_pairs(packer, list(value.items()), depth + 1, enums)
    elif kind in MARKS:
        packer.pack_array_header(len(value) + 1)
        packer.pack_ext_type(MARK, MARKS[kind])
        for item in value:
            write(packer, item, depth + 1, enums)
    else:
        packer.pack_ext_type(*leaf(value, enums))


def _write_items(packer: Packer, items: list[Any], depth: int, enums: Enums) -> None:
    if SCALARS.issuperset(map(type, items)):
        packer.pack(items)
        return
    packer.pack_array_header(len(items))
    for item in items:
        write(packer, item, depth, enums)


def _write_pairs(packer: Packer, pairs: list[tuple[Any, Any]], depth: int, enums: Enums) -> None:
    packer.pack_map_header(len(pairs))
    for key, value in pairs:
        write(packer, key, depth, enums)
        write(packer, value, depth, enums)


def canonical(value: Any, depth: int, enums: Enums) -> bytes:
    """Pack like `write`, with the items of dicts and sets in the order of their packed bytes."""
    kind = type(value)
    if kind in SCALARS:
        return packed_plain(value)
    if depth >= MAX_DEPTH:
        raise _Unfit
    if kind is dict:
        pairs = sorted(
            (canonical(key, depth + 1, enums), canonical(item, depth + 1, enums)) for key, item in value.items()
        )
        return packed_walk(_map_header, len(pairs), enums) + b"".join(chain.from_iterable(pairs))
    if kind is list and SCALARS.issuperset(map(type, value)):
        return packed_plain(value)
    if kind is not list and kind not in MARKS:
        return packed_plain(ExtType(*leaf(value, enums)))
    parts = [canonical(item, depth + 1, enums) for item in value]
    if kind is set or kind is frozenset:
        parts.sort()
    if kind is not list:
        parts.insert(0, MARK_BYTES + MARKS[kind])
    return packed_walk(_array_header, len(parts), enums) + b"".join(parts)


def _array_header(packer: Packer, count: int, _depth: int, _enums: Enums) -> None:
    packer.pack_array_header(count)


def _map_header(packer: Packer, count: int, _depth: int, _enums: Enums) -> None:
    packer.pack_map_header(count)
