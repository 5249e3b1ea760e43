"""What a type hint says of a value: whether it fits, its plain form for the wire, and the way back.

A `Shape` is made of a hint by `hints`.  `pack` turns a value into plain values, which the codec can carry; `fit`
turns them into what the hint declares.  Both raise `Misfit`, to which each container adds where the value lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tenure.names import shown
from tenure.sameness import copied, difference

Change = Callable[[Any], Any]

_ROWS = frozenset({list, tuple, set, frozenset})
_HASHED = frozenset({set, frozenset})
_ABSENT = object()


class Misfit(Exception):
    """A value that does not fit its hint; `path` is where it lies under the argument, `why` what is wrong with it.

    `changed`: it fits, but would not arrive as an equal value, so that no way of carrying it is left.
    """

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path
        self.changed = False

    def final(self) -> Misfit:
        """Return it as one of a value that would not arrive as an equal one."""
        self.changed = True
        return self

    def under(self, segment: str) -> None:
        """Say where it lies as seen from one container further out."""
        self.path = segment + self.path


class Shape:
    """What one hint says.

    `name` is how the hint reads.  `converts`: pack and fit may return another value than they were given.  `by_type`:
    whether a value fits depends on its type alone.  `flat`: no list, tuple, set or dict fits it.  `any_form`: its plain
    form may be of any type.
    """

    converts = False
    by_type = False
    flat = False
    any_form = False

    def __init__(self, name: str) -> None:
        self.name = name

    def pack(self, value: Any) -> Any:
        """Return the value's plain form; raises Misfit."""
        raise NotImplementedError

    def fit(self, value: Any) -> Any:
        """Return what the plain form stands for; raises Misfit."""
        raise NotImplementedError

    def check_rebuilt(self, value: Any, plain: Any) -> None:
        """Raise Misfit unless the plain form comes back as a value that is the same."""
        if not self.converts:
            return
        try:
            found = difference(value, self.fit(copied(plain)))
        except Misfit as misfit:
            raise misfit.final() from misfit.__cause__
        if found is not None:
            raise Misfit(found.why, found.path).final()

    def refuse(self, value: Any) -> NoReturn:
        """Raise Misfit for a value of a type that the hint does not mean."""
        raise self.misfit(value)

    def misfit(self, value: Any) -> Misfit:
        """Return the Misfit for a value of a type that the hint does not mean."""
        return Misfit(f"is {shown(value)} of type {type(value).__name__}, which does not fit the hint {self.name}")


class Kind(Shape):
    """A value of some classes, which travels as it is."""

    by_type = True

    def __init__(self, name: str, classes: tuple[type, ...], flat: bool = False) -> None:
        super().__init__(name)
        self.classes = classes
        self.exact = frozenset(classes)
        self.flat = flat

    def pack(self, value: Any) -> Any:
        if type(value) not in self.exact and not isinstance(value, self.classes):
            self.refuse(value)
        return value

    fit = pack


class OneOf(Shape):
    """One of some values: a Literal."""

    flat = True

    def __init__(self, name: str, values: Iterable[Any]) -> None:
        super().__init__(name)
        self._values = {(type(value), value) for value in values}

    def pack(self, value: Any) -> Any:
        try:
            found = (type(value), value) in self._values
        except TypeError:  # no hash, so it is none of them
            found = False
        if not found:
            self.refuse(value)
        return value

    fit = pack


class Row(Shape):
    """A list, tuple, set, or any collection of items that are all alike; `item` None: whatever they are."""

    def __init__(self, name: str, origin: type, item: Shape | None) -> None:
        super().__init__(name)
        self._origin = origin
        self._item = item
        self.converts = item is not None and item.converts
        self.by_type = item is None

    def pack(self, value: Any) -> Any:
        item = self._checked(value)
        if item is None:
            return value
        items = self._each(item.pack, value)
        if not item.converts:
            return value
        kind = type(value)
        return kind(map(freeze, items)) if kind in _HASHED else kind(items)

    def fit(self, value: Any) -> Any:
        item = self._checked(value)
        if item is None:
            return value
        items = self._each(item.fit, value)
        return type(value)(items) if item.converts else value

    def _checked(self, value: Any) -> Shape | None:
        """Return the shape by which each item still has to be looked at."""
        if not isinstance(value, self._origin):
            self.refuse(value)
        item = self._item
        if type(value) not in _ROWS or (
            type(item) is Kind and item.exact.issuperset(map(type, cast("list[Any]", value)))
        ):
            return None
        return item

    def _each(self, change: Change, items: Iterable[Any]) -> list[Any]:
        out = []
        for number, item in enumerate(items):
            try:
                out.append(change(item))
            except Misfit as misfit:
                misfit.under("{member}" if type(items) in _HASHED else f"[{number}]")
                raise
        return out


class Places(Shape):
    """A tuple with a hint for each place."""

    def __init__(self, name: str, items: tuple[Shape | None, ...]) -> None:
        super().__init__(name)
        self._items = items
        self.converts = any(item is not None and item.converts for item in items)

    def pack(self, value: Any) -> Any:
        return self._each(value, "pack")

    def fit(self, value: Any) -> Any:
        return self._each(value, "fit")

    def _each(self, value: Any, way: str) -> Any:
        if type(value) is not tuple:
            self.refuse(value)
        if len(value) != len(self._items):
            raise Misfit(f"has {len(value)} items, where the hint {self.name} has {len(self._items)}")
        pairs = zip(self._items, value, strict=True)
        return tuple(_changed(shape, way, item, f"[{number}]") for number, (shape, item) in enumerate(pairs))


class Table(Shape):
    """A dict or another mapping."""

    def __init__(self, name: str, origin: type, key: Shape | None, item: Shape | None) -> None:
        super().__init__(name)
        self._origin = origin
        self._key = key
        self._item = item
        self.converts = any(shape is not None and shape.converts for shape in (key, item))
        self.by_type = key is None and item is None

    def pack(self, value: Any) -> Any:
        return self._each(value, "pack")

    def fit(self, value: Any) -> Any:
        return self._each(value, "fit")

    def _each(self, value: Any, way: str) -> Any:
        if not isinstance(value, self._origin):
            self.refuse(value)
        if type(value) is not dict or self.by_type:
            return value
        out = {}
        for key, item in value.items():
            place = f"[{shown(key)}]"
            new = _changed(self._key, way, key, f".keys(){place}")
            out[freeze(new) if way == "pack" else new] = _changed(self._item, way, item, place)
        return out if self.converts else value


class Either(Shape):
    """A union.  Where the plain form of one alternative could be taken for another's, each is sent with its name."""

    def __init__(self, name: str, shapes: Mapping[str, Shape | None]) -> None:
        super().__init__(name)
        self._shapes = shapes
        known = [shape for shape in shapes.values() if shape is not None]
        rest = [shape for shape in known if not shape.converts]
        self.converts = len(rest) < len(known)
        self.by_type = len(known) == len(shapes) and all(shape.by_type for shape in known)
        self.flat = len(known) == len(shapes) and all(shape.flat for shape in known)
        single = len(known) == len(shapes) == len(rest) + 1 and all(shape.flat for shape in rest)
        self._named = self.converts and not (single and not any(shape.any_form for shape in known))

    def pack(self, value: Any) -> Any:
        label, plain = self._first(value, "pack", self._shapes)
        shape = self._shapes[label]
        return (label, plain) if self._named and not (shape is not None and shape.flat) else plain

    def fit(self, value: Any) -> Any:
        if self._named and type(value) is tuple and len(value) == 2 and type(value[0]) is str:
            label, plain = value
            if label not in self._shapes:
                raise Misfit(f"is a {label[:200]}, which is not in the hint {self.name}")
            return _changed(self._shapes[label], "fit", plain, "")
        return self._first(value, "fit", self._shapes)[1]

    def _first(self, value: Any, way: str, shapes: Mapping[str, Shape | None]) -> tuple[str, Any]:
        nearest = None
        for label, shape in shapes.items():
            try:
                return label, _changed(shape, way, value, "")
            except Misfit as misfit:
                if misfit.changed:
                    raise
                nearest = misfit if misfit.path and nearest is None else nearest
        raise nearest or self.misfit(value)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class: its shape, its name in the constructor (None: not there), whether it may be left out."""

    shape: Shape | None
    argument: str | None
    optional: bool


class Struct(Shape):
    """A dataclass, attrs class, NamedTuple or TypedDict; its plain form is a dict of its fields.

    `fields` is filled in after it is made, for a class may hold others of its kind.
    """

    converts = True

    def __init__(self, name: str, cls: type, typed_dict: bool = False) -> None:
        super().__init__(name)
        self.fields: dict[str, Field] = {}
        self._cls = dict if typed_dict else cls
        self._typed_dict = typed_dict

    def pack(self, value: Any) -> Any:
        if type(value) is not self._cls:
            if isinstance(value, self._cls):
                raise Misfit(f"is a {type(value).__name__}, which would come back as its base {self.name}")
            self.refuse(value)
        if self._typed_dict:
            return self._items(cast("dict[str, Any]", value), "pack")
        given = ((name, getattr(value, name, _ABSENT)) for name in self.fields)
        return self._items({name: item for name, item in given if item is not _ABSENT}, "pack")

    def fit(self, value: Any) -> Any:
        fields: Any = thaw(value)
        if type(fields) is not dict:
            self.refuse(value)
        items = self._items(cast("dict[str, Any]", fields), "fit")
        return items if self._typed_dict else self._made(items)

    def _items(self, value: dict[str, Any], way: str) -> dict[str, Any]:
        for name in value:
            if name not in self.fields:
                raise Misfit(f"has a field {shown(name)}, which {self.name} has not")
        out = {}
        for name, field in self.fields.items():
            if name in value:
                place = f"[{name!r}]" if self._typed_dict else f".{name}"
                out[name] = _changed(field.shape, way, value[name], place)
            elif not field.optional:
                raise Misfit(f"has no field {name!r}, which {self.name} needs")
        # A TypedDict keeps the order that it came in.
        return {name: out[name] for name in value} if self._typed_dict else out

    def _made(self, items: dict[str, Any]) -> Any:
        arguments: dict[str, Any] = {}
        later: dict[str, Any] = {}
        for name, item in items.items():
            argument = self.fields[name].argument
            if argument is None:
                later[name] = item
            else:
                arguments[argument] = item
        try:
            made = self._cls(**arguments)
            for name, item in later.items():
                object.__setattr__(made, name, item)  # also in a frozen class
        except BaseException as error:
            raise Misfit(f"cannot be made into {self.name}: {type(error).__name__}: {error}") from error
        return made


class Never(Shape):
    """A class that cannot be carried, and why."""

    converts = True

    def pack(self, value: Any) -> Any:
        raise Misfit(self.name)

    fit = pack


def freeze(plain: Any) -> Any:
    """Return a plain form that can be a key or a set's member: dicts as tuples of pairs."""
    if type(plain) is dict:
        return tuple((key, freeze(item)) for key, item in plain.items())
    return tuple(map(freeze, plain)) if type(plain) is tuple else plain


def thaw(plain: Any) -> Any:
    """Return the dict of a frozen one, its items still frozen; anything else as it is."""
    if type(plain) is tuple and all(type(pair) is tuple and len(pair) == 2 for pair in plain):
        try:
            return dict(plain)
        except TypeError:
            return plain
    return plain


def _changed(shape: Shape | None, way: str, value: Any, place: str) -> Any:
    if shape is None:
        return value
    try:
        return shape.pack(value) if way == "pack" else shape.fit(value)
    except Misfit as misfit:
        misfit.under(place)
        raise
