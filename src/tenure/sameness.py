"""Whether an object that was rebuilt from its plain form is the one that was packed, and which part of it is not.

Stricter than `==`: types, fields that `==` leaves out, the zone and fold of times, and -0.0 count; NaN is NaN.
An int may become an equal float or Decimal, and a plain value an Enum member that is equal to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from tenure.names import shown
from tenure.packable import SCALARS

_BY_TEXT = frozenset({float, complex, Decimal, datetime, time})
"""Kinds of which `==` leaves out what `repr` tells: NaN, the sign of zero, trailing zeros, zones, fold."""

_ABSENT = object()


class Difference(NamedTuple):
    """The first part that differs: its path, the class that it is a field of ("" for none), it before and after."""

    path: str
    owner: str
    before: object
    after: object

    @property
    def why(self) -> str:
        """What is wrong, and how to mend it, to be read after the path."""
        if self.before is _ABSENT or self.after is _ABSENT:
            change = "would not arrive" if self.after is _ABSENT else "would come up on the way"
        else:
            change = f"is {shown(self.before)} and would arrive as {shown(self.after)}"
        if type(self.before) is not type(self.after) and _ABSENT not in (self.before, self.after):
            change += f" (of type {type(self.after).__name__}, not {type(self.before).__name__})"
        return f"{change}, for {self.owner or 'its class'} does not make an equal object of its own fields"


def copied(plain: Any) -> Any:
    """Return a plain form whose containers are new, so that a constructor cannot change the value that was packed."""
    kind = type(plain)
    if kind in SCALARS:
        return plain
    if kind is dict:
        return {key: copied(item) for key, item in plain.items()}
    if kind is list or kind is tuple:
        return kind(map(copied, plain))
    return kind(plain) if kind is set or kind is bytearray else plain


def difference(before: Any, after: Any) -> Difference | None:
    """Return the first part in which two values differ, or None."""
    kind = type(before)
    if kind is not type(after):
        return None if _made_exact(before, after) else Difference("", "", before, after)
    if before is after:
        return None
    if kind is str or kind is int:
        return None if before == after else Difference("", "", before, after)
    if kind in _BY_TEXT:
        return None if repr(before) == repr(after) else Difference("", "", before, after)
    if kind is list or kind is tuple:
        return _rows(before, after)
    if kind is dict:
        return _tables(before, after)
    if kind is set or kind is frozenset:
        return None if _same_members(before, after) else Difference("", "", before, after)
    parts = parts_of(before)
    if parts is not None:
        return _fields(kind.__qualname__.rpartition("<locals>.")[2], parts, parts_of(after) or {})
    if _has_own_eq(kind):
        return None if before == after else Difference("", "", before, after)
    # Two objects of a class without __eq__ are the same if all that can be seen in them is.
    return _fields(kind.__name__, getattr(before, "__dict__", {}), getattr(after, "__dict__", {}))


def _made_exact(before: object, after: object) -> bool:
    """Whether the other is equal and of a nearer type: pydantic leaves a default as it is, as in `x: float = 0`."""
    if type(before) in (int, float) and type(after) in (float, Decimal):
        return before == after
    return type(before) in (int, str) and isinstance(after, Enum) and before == after


def _has_own_eq(kind: type) -> bool:
    return any("__eq__" in vars(base) for base in kind.__mro__[:-1])


def parts_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a pydantic model, dataclass, attrs object or NamedTuple; None for anything else."""
    kind = type(value)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate"):
        fields = {name: value.__dict__.get(name, _ABSENT) for name in kind.model_fields}
        return fields | (value.__pydantic_extra__ or {}) | (value.__pydantic_private__ or {})
    if dataclasses.is_dataclass(kind):
        return _present(value, (item.name for item in dataclasses.fields(kind)))
    if hasattr(kind, "__attrs_attrs__"):
        return _present(value, (item.name for item in kind.__attrs_attrs__))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return dict(zip(kind._fields, value, strict=True))
    return None


def _present(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name, _ABSENT) for name in names}


def _fields(owner: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    for name in (*before, *(after.keys() - before.keys())):
        found = difference(before.get(name, _ABSENT), after.get(name, _ABSENT))
        if found is not None:
            return found._replace(path=f".{name}{found.path}", owner=found.owner or owner)
    return None


def _rows(before: Any, after: Any) -> Difference | None:
    if len(before) != len(after):
        return Difference("", "", before, after)
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        found = difference(one, other)
        if found is not None:
            return found._replace(path=f"[{number}]{found.path}")
    return None


def _tables(before: Any, after: Any) -> Difference | None:
    if not _same_members(before, after):
        return Difference("", "", before, after)
    for key, item in before.items():
        if key not in after:  # a key whose class has no __eq__, or NaN: it has no place by which to find the item
            return None if _same_members(before.items(), after.items()) else Difference("", "", before, after)
        found = difference(item, after[key])
        if found is not None:
            return found._replace(path=f"[{shown(key)}]{found.path}")
    return None


def _same_members(before: Iterable[Any], after: Iterable[Any]) -> bool:
    """Whether each of the one has its own equal in the other, in any order."""
    left = list(after)
    try:
        index = {item: item for item in left}
    except TypeError:
        index = {}
    odd = [item for item in before if not index or difference(item, index.pop(item, _ABSENT)) is not None]
    rest = list(index.values()) if index or len(odd) < len(left) else left
    for item in odd:
        match = next((n for n, other in enumerate(rest) if difference(item, other) is None), None)
        if match is None:
            return False
        del rest[match]
    return not rest
