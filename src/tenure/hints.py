"""What a function's type hints say of its arguments and its result, worked out once for each task."""

from __future__ import annotations

import collections.abc as abc
import datetime as dt
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from tenure.class_fields import fields_finder, missing_arguments
from tenure.errors import NotSerializable, WrongArgument
from tenure.leaves import NO_ENUMS, Enums
from tenure.models import Model
from tenure.packable import SCALARS
from tenure.shapes import Either, Field, Kind, Misfit, Never, OneOf, Places, Row, Shape, Struct, Table

_FITS: Mapping[type, tuple[type, ...]] = {
    # hint: the classes of the values that fit it, as type checkers see it
    type(None): (type(None),),
    bool: (bool,),
    int: (int, bool),
    float: (float, int, bool),
    complex: (complex, float, int, bool),
    str: (str,),
    bytes: (bytes,),
    bytearray: (bytearray,),
    dt.datetime: (dt.datetime,),
    dt.date: (dt.date, dt.datetime),
    dt.time: (dt.time,),
    dt.timedelta: (dt.timedelta,),
    Decimal: (Decimal,),
    UUID: (UUID,),
}
_AROUND = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)
_MAX_KNOWN = 200
_MODULES = re.compile(r"\b(\w+\.)+(?=\w)")

Vars = Mapping[Any, Any]
"""What stands for each TypeVar."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the hints of one function come to.

    `places` are the parameters by position, `words` those by name, `rest` and `more` what `*` and `**` collect.
    `shapes` has one for each parameter with a hint that says anything, `returns` that of the result; `enums` are the
    Enum classes that they name.  `known` are the types of calls that fit and need no conversion; `unclear` are the
    hints that name what could not be found.
    """

    name: str
    places: tuple[str, ...]
    words: frozenset[str]
    rest: str | None
    more: str | None
    shapes: Mapping[str, Shape]
    returns: Shape | None
    enums: Enums = NO_ENUMS
    unclear: tuple[str, ...] = ()
    known: set[tuple[object, ...]] = field(default_factory=set, compare=False)

    def pack(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], check: bool = True
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments as plain values; raises WrongArgument for one that does not fit its hint.

        Without `check` such a value stays as it is.
        """
        return self._changed(args, kwargs, "pack", check)

    def fit(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], check: bool = True
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments that plain values stand for; raises like `pack`."""
        return self._changed(args, kwargs, "fit", check)

    def knows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call of these types is known to fit and to need no conversion."""
        return (_types(args, kwargs) if kwargs else (*map(type, args),)) in self.known

    def pack_result(self, value: Any) -> Any:
        """Return the result's plain form; one that does not fit the hint stays as it is.

        Raises NotSerializable for an object that would not come back as an equal one.
        """
        shape = self.returns
        try:
            return value if shape is None else _one(shape, "pack", value, False)
        except Misfit as misfit:
            raise NotSerializable(f"result{misfit.path} {misfit.why}; {_EQUAL}") from misfit.__cause__

    def fit_result(self, value: Any) -> Any:
        """Return what the result's plain form stands for, or the plain form where it does not fit."""
        shape = self.returns
        return value if shape is None else _one(shape, "fit", value, False)

    def _changed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], way: str, check: bool
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        simple = True
        named: list[tuple[str, str | None, Any]] = [
            (f"args[{n}]", self.places[n] if n < len(self.places) else self.rest, value) for n, value in enumerate(args)
        ]
        named += [(f"kwargs[{name!r}]", name if name in self.words else self.more, kwargs[name]) for name in kwargs]
        out = []
        for path, name, value in named:
            shape = self.shapes.get(name or "")
            simple = simple and (shape is None or shape.by_type)
            out.append(value if shape is None else self._argument(shape, way, value, check, path, name or ""))
        if simple and check and not self.unclear and len(self.known) < _MAX_KNOWN:
            self.known.add(_types(args, kwargs))
        return tuple(out[: len(args)]), dict(zip(kwargs, out[len(args) :], strict=True))

    def _argument(self, shape: Shape, way: str, value: Any, check: bool, path: str, name: str) -> Any:
        try:
            return _one(shape, way, value, check)
        except Misfit as misfit:
            text = f"{path}{misfit.path} {misfit.why} (parameter {name} of {self.name})"
            raise WrongArgument(f"{text}; {_EQUAL if misfit.changed else _FITTING}") from misfit.__cause__


def plan(function: Callable[..., Any], signature: inspect.Signature | None = None, name: str = "") -> Plan:
    """Work out the hints of a function; `signature` has the parameters that count (default: all of them).

    A hint that names what cannot be found is left out, and noted in `unclear`.
    """
    parameters = (inspect.signature(function) if signature is None else signature).parameters
    reader = _Reader()
    hints = reader.hints_of(function)
    shapes = {
        word: shape
        for word, parameter in parameters.items()
        if (shape := _with_default(reader.shape(hints.get(word, Any), {}), parameter.default)) is not None
    }
    kinds = {parameter.kind: word for word, parameter in parameters.items()}
    return Plan(
        name=name or getattr(function, "__qualname__", repr(function)),
        places=tuple(word for word, parameter in parameters.items() if parameter.kind in _POSITIONAL),
        words=frozenset(word for word, parameter in parameters.items() if parameter.kind in _NAMED),
        rest=kinds.get(inspect.Parameter.VAR_POSITIONAL),
        more=kinds.get(inspect.Parameter.VAR_KEYWORD),
        shapes=shapes,
        returns=reader.shape(hints.get("return", Any), {}),
        enums=Enums(reader.enums) if reader.enums else NO_ENUMS,
        unclear=tuple(reader.unclear),
    )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _types(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[object, ...]:
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))


_FITTING = "pass what the hint says, or switch the check off: @app.task(check=False)"
_EQUAL = (
    "declare the very classes that are in it, and let validators, converters, __init__ and __post_init__ leave alone "
    "what they have made once (private attributes do not travel); or pass plain values and make it inside the task"
)


def _one(shape: Shape, way: str, value: Any, check: bool) -> Any:
    try:
        if way == "fit":
            return shape.fit(value)
        plain = shape.pack(value)
        shape.check_rebuilt(value, plain)
        return plain
    except RecursionError:
        raise Misfit("contains itself, or lies in too many containers; pass a flatter value") from None
    except Misfit as misfit:
        if check or misfit.changed:
            raise
        return value
    except Exception as error:  # of the value's own code, or of the class that is made
        if check:
            raise Misfit(f"cannot be converted: {type(error).__name__}: {error}") from error
        return value


def _with_default(shape: Shape | None, default: Any) -> Shape | None:
    """Let the default's type fit as well: `limit: int = None` is written often."""
    if shape is None or default is inspect.Parameter.empty or type(default) not in SCALARS:
        return shape
    try:
        shape.pack(default)
    except Misfit:
        own = _kind(type(default))
        return Either(f"{shape.name} | {own.name}", {shape.name: shape, own.name: own})
    return shape


def _kind(hint: type) -> Kind:
    return Kind("None" if hint is type(None) else hint.__name__, _FITS[hint], flat=True)


class _Reader:
    """Makes shapes of hints; notes the Enum classes that it meets, and the hints that it could not resolve."""

    def __init__(self) -> None:
        self.enums: dict[type[Enum], None] = {}
        self.unclear: list[str] = []
        self._made: dict[Any, Shape] = {}

    def hints_of(self, owner: Any) -> dict[str, Any]:
        """Return the resolved annotations of a function or class, those that cannot be resolved left out."""
        try:
            return typing.get_type_hints(owner, include_extras=True)
        except Exception:  # noqa: BLE001  (a hint is code: it may name what is missing, or be wrong in any way)
            return self._one_by_one(owner)

    def _one_by_one(self, owner: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in reversed(owner.__mro__) if isinstance(owner, type) else [inspect.unwrap(owner)]:
            space = getattr(part, "__globals__", None) or vars(inspect.getmodule(part) or types)
            for name, hint in vars(part).get("__annotations__", getattr(part, "__annotations__", {})).items():
                single = types.SimpleNamespace(__annotations__={name: hint})
                try:
                    found |= typing.get_type_hints(single, space, dict(vars(part)), include_extras=True)
                except Exception:  # noqa: BLE001
                    self.unclear.append(f"{name}: {hint}")
        return found

    def shape(self, hint: Any, vars_: Vars) -> Shape | None:
        """Return what a hint says; None: any value fits, and stays as it is."""
        if isinstance(hint, typing.TypeVar):
            return self.shape(vars_.get(hint, hint.__bound__), {}) if hint in vars_ or hint.__bound__ else None
        if isinstance(hint, typing.NewType):
            return self.shape(hint.__supertype__, vars_)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in _AROUND or (args and getattr(origin, "__name__", "") == "ReadOnly"):
            return self.shape(args[0], vars_)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(args, vars_)
        if origin is typing.Literal:
            self._note(args)
            return OneOf(str(hint).replace("typing.", ""), args)
        alias = hint if origin is None else origin
        if hasattr(alias, "__value__"):  # `type Rows[T] = list[T]`
            return self.shape(alias.__value__, dict(zip(alias.__type_params__, args, strict=False)))
        kind = type(None) if alias is None else alias
        if not isinstance(kind, type) or kind is object or kind is Any:
            return None
        return self._of_class(kind, hint, args, vars_)

    def _of_class(self, kind: type, hint: Any, args: tuple[Any, ...], vars_: Vars) -> Shape | None:
        if kind in _FITS:
            return _kind(kind)
        if issubclass(kind, Enum):
            self._note(kind)
            return Kind(kind.__name__, (kind,), flat=True)
        if kind is tuple and args and args[-1] is not Ellipsis:
            return Places(_text(hint), tuple(self.shape(item, vars_) for item in args if item != ()))
        made = self._of_fields(kind, hint, args, vars_)
        if made is not None:
            return made
        if issubclass(kind, abc.Mapping) and len(args) == 2:
            return Table(_text(hint), kind, self.shape(args[0], vars_), self.shape(args[1], vars_))
        if kind in _ROW_HINTS and args:
            return Row(_text(hint), kind, self.shape(args[0], vars_))
        return _instance(kind)

    def _union(self, args: tuple[Any, ...], vars_: Vars) -> Shape:
        shapes = [self.shape(item, vars_) for item in args]
        names = ["Any" if shape is None else shape.name for shape in shapes]
        labels = names if len(set(names)) == len(names) else [repr(item) for item in args]
        return Either(" | ".join(names), dict(zip(labels, shapes, strict=True)))

    def _of_fields(self, kind: type, hint: Any, args: tuple[Any, ...], vars_: Vars) -> Shape | None:
        """Return the shape of a class with fields, None for any other."""
        find = fields_finder(kind)
        model = hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")
        if find is None and not model:
            return None
        key = (kind, args, tuple(map(vars_.get, args)))
        made = self._made.get(key)
        if made is not None:
            return made
        name = kind.__qualname__.rpartition("<locals>.")[2]
        if find is None:
            self._made[key] = Model(name, kind)
            for info in getattr(kind, "model_fields", {}).values():
                self.shape(info.annotation, {})  # for the Enum classes in it
            return self._made[key]
        struct = self._made[key] = Struct(name if not args else _text(hint), kind, typing.is_typeddict(kind))
        inner = dict(zip(getattr(kind, "__parameters__", ()), [vars_.get(item, item) for item in args], strict=False))
        hints = self.hints_of(kind)
        for word, (argument, optional) in find(kind, hints).items():
            struct.fields[word] = Field(self.shape(hints.get(word, Any), inner), argument, optional)
        missing = missing_arguments(kind, struct)
        if missing:
            self._made[key] = Never(f"is a {name}, which cannot be made from its fields: it also needs {missing}")
        return self._made[key]

    def _note(self, found: Any) -> None:
        for item in found if isinstance(found, tuple) else (found,):
            kind = item if isinstance(item, type) else type(item)
            if issubclass(kind, Enum):
                self.enums[kind] = None


_ROW_HINTS = frozenset(
    {
        list,
        tuple,
        set,
        frozenset,
        abc.Sequence,
        abc.MutableSequence,
        abc.Collection,
        abc.Iterable,
        abc.Set,
        abc.MutableSet,
    }
)


def _instance(kind: type) -> Shape | None:
    """Return the shape of a class that says nothing of what is in it; None where it cannot be looked at."""
    try:
        isinstance(None, kind)
    except TypeError:  # a protocol, for instance
        return None
    return Kind(kind.__name__, (kind,))


def _text(hint: Any) -> str:
    return hint.__name__ if type(hint) is type else _MODULES.sub("", str(hint))
