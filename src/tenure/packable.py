"""Which values have a wire form, and where the first one lies that has none."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from tenure.leaves import NO_ENUMS, Enums, NoWireForm, leaf

MAX_DEPTH = 100
"""How deep containers may lie in each other."""

SCALARS = frozenset({type(None), bool, int, float, str, bytes})
"""What msgpack has types for itself."""

MARKS: dict[type, bytes] = {tuple: b"t", set: b"s", frozenset: b"f"}
"""Containers that msgpack does not know -> the byte that marks them."""

_WAYS_OUT = {
    "PosixPath": "pass str() of it",
    "WindowsPath": "pass str() of it",
    "memoryview": "pass bytes() of it",
    "complex": "pass its real and imag parts",
    "generator": "pass list() of it",
    "function": "pass its name, and look it up in the task",
    "Task": "pass its name",
    "coroutine": "await it first and pass what it returns",
}


def find_fault(
    value: Any, path: str, enums: Enums = NO_ENUMS, depth: int = 0, around: tuple[int, ...] = ()
) -> str | None:
    """Return what is wrong with the first value in `value` that has no wire form, beginning with its path, or None.

    `enums` are those that may travel.  `depth` counts the containers around it; `around` are their ids.
    """
    kind = type(value)
    if kind is str:
        return _str_fault(value, path)
    if kind in SCALARS:
        return None
    if id(value) in around:
        return (
            f"{path} is a {kind.__name__} that contains itself, which has no wire form; pass a copy without the cycle"
        )
    if depth >= MAX_DEPTH:
        return f"{path} lies in more than {MAX_DEPTH} containers, which is the limit; pass a flatter value"
    if kind is dict:
        return _dict_fault(value, path, enums, depth + 1, (*around, id(value)))
    if kind is list or kind in MARKS:
        named = kind is list or kind is tuple
        places = ((f"{path}[{n}]" if named else f"{path}{{member}}", item) for n, item in enumerate(value))
        found = (find_fault(item, place, enums, depth + 1, (*around, id(value))) for place, item in places)
        return next((fault for fault in found if fault is not None), None)
    return _leaf_fault(value, path, enums)


def _leaf_fault(value: Any, path: str, enums: Enums) -> str | None:
    try:
        leaf(value, enums)
    except UnicodeEncodeError:
        return (
            f"{path} is a {_name_of(type(value))} with a lone surrogate in a name, which has no UTF-8 form; rename it"
        )
    except NoWireForm as error:
        kind = type(value)
        return (
            f"{path} {error}"
            if error.args
            else f"{path} is a {_name_of(kind)}, which has no wire form; {_way_out(kind)}"
        )
    return None


def _dict_fault(value: dict[Any, Any], path: str, enums: Enums, depth: int, around: tuple[int, ...]) -> str | None:
    for key, item in value.items():
        shown = repr(key)[:60] if type(key) in (str, bytes, bool, float) else f"<{type(key).__name__} key>"
        if type(key) is int and key.bit_length() < 64:
            shown = repr(key)
        fault = find_fault(key, f"{path}.keys()[{shown}]", enums, depth, around)
        fault = fault or find_fault(item, f"{path}[{shown}]", enums, depth, around)
        if fault is not None:
            return fault
    return None


def _str_fault(value: str, path: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return (
            f"{path} is a str with a lone surrogate at index {error.start}, which has no UTF-8 form; "
            "pass bytes (os.fsencode for a path), or clean the text"
        )
    return None


def _name_of(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _has_fields(kind: type) -> bool:
    """Whether the kind is one that hints can carry: a dataclass, attrs class, NamedTuple or pydantic model."""
    marks = ("__attrs_attrs__", "__pydantic_fields__", "_field_defaults")
    return is_dataclass(kind) or any(hasattr(kind, mark) for mark in marks)


def _way_out(kind: type) -> str:
    way = _WAYS_OUT.get(kind.__name__)
    if way is not None:
        return way
    if _has_fields(kind):
        return (
            f"declare it in the function's signature (a parameter or return type {kind.__name__}), or pass plain values"
        )
    for base in (bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset):
        if issubclass(kind, base):
            return f"it would come back as its base {base.__name__}: pass {base.__name__}() of it"
    return "pass its id or a dict of plain values, and make the object inside the task"
