"""What a class with fields says of them: their names, how its constructor takes them, and what else it needs."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tenure.shapes import Struct

Fields = Mapping[str, tuple[str | None, bool]]
"""Field -> its name in the constructor (None: it is not there), and whether it may be left out."""


def fields_finder(kind: type) -> Callable[[Any, Mapping[str, Any]], Fields] | None:
    """Return what finds the fields of a class, given its resolved hints; None for a class without fields."""
    if typing.is_typeddict(kind):
        return _of_typed_dict
    if dataclasses.is_dataclass(kind):
        return _of_dataclass
    if "__attrs_attrs__" in vars(kind) or hasattr(kind, "__attrs_attrs__"):
        return _of_attrs
    return _of_named_tuple if issubclass(kind, tuple) and hasattr(kind, "_field_defaults") else None


def _of_typed_dict(kind: Any, hints: Mapping[str, Any]) -> Fields:
    # Where annotations are texts, the class itself does not see what is marked as Required or NotRequired in them.
    marked = {name: typing.get_origin(hint) for name, hint in hints.items()}
    return {
        name: (name, marked[name] is typing.NotRequired or name in kind.__optional_keys__ - _required(marked))
        for name in hints
    }


def _required(marked: Mapping[str, Any]) -> set[str]:
    return {name for name, mark in marked.items() if mark is typing.Required}


def _of_dataclass(kind: Any, _hints: Mapping[str, Any]) -> Fields:
    none = dataclasses.MISSING
    return {
        item.name: (
            item.name if item.init else None,
            not item.init or item.default is not none or item.default_factory is not none,
        )
        for item in dataclasses.fields(kind)
    }


def _of_attrs(kind: Any, _hints: Mapping[str, Any]) -> Fields:
    # attrs is not imported: each attribute says of itself what is needed.  NOTHING, of type _Nothing: no default.
    return {
        item.name: (
            (item.alias or item.name.lstrip("_")) if item.init else None,
            not item.init or type(item.default).__name__ != "_Nothing",
        )
        for item in kind.__attrs_attrs__
    }


def _of_named_tuple(kind: Any, _hints: Mapping[str, Any]) -> Fields:
    return {name: (name, name in kind._field_defaults) for name in kind._fields}


def missing_arguments(kind: type, struct: Struct) -> str:
    """Return the names of what the constructor needs and no field gives (an InitVar, for instance)."""
    if typing.is_typeddict(kind):
        return ""
    given = {item.argument for item in struct.fields.values()}
    single = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return ", ".join(
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if name not in given and parameter.default is inspect.Parameter.empty and parameter.kind not in single
    )
