"""The shape of a pydantic model, which is carried by what its fields hold and not by what its serializers say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tenure.leaves import Enums, leaf
from tenure.names import shown
from tenure.packable import MARKS, SCALARS, find_fault
from tenure.shapes import Misfit, Shape, thaw


class Model(Shape):
    """A pydantic model; its plain form is a dict of its fields, and it is validated when it comes back.

    A secret (SecretStr, for instance) travels as what it hides.  A form that does not come back as an equal model is
    not used: `model_dump` gets its chance, and then the model is refused.
    """

    converts = True
    any_form = True

    def __init__(self, name: str, cls: type) -> None:
        super().__init__(name)
        self._cls: Any = cls

    def pack(self, value: Any) -> Any:
        if type(value) is not self._cls:
            self.refuse(value)
        wrong: list[Misfit] = []
        for form in (_model_plain, _dumped, _dumped_as_json):
            try:
                plain = form(value)
                super().check_rebuilt(value, plain)
            except _LeftOut:
                raise
            except Misfit as misfit:
                wrong.append(misfit)
            except (TypeError, ValueError) as error:
                wrong.append(Misfit(f"cannot be dumped as {self.name}: {type(error).__name__}"))
            else:
                return plain
        raise wrong[0].final()

    def check_rebuilt(self, value: Any, plain: Any) -> None:
        """Do nothing: `pack` has looked already."""

    def fit(self, value: Any) -> Any:
        fields = value if getattr(self._cls, "__pydantic_root_model__", False) else thaw(value)
        try:
            return self._cls.model_validate(fields, by_name=True)
        except BaseException as error:
            told = _told(error)
            if told is None:
                raise Misfit(f"cannot be made into {self.name}: {type(error).__name__}: {error}") from error
        # Not `from error`, whose text shows the input: it may be what a secret hides.
        raise Misfit(f"cannot be made into {self.name}: {told}")


def _told(error: Any) -> str | None:
    """Return what a validation error says without the input; None for another error."""
    if type(error).__name__ != "ValidationError" or not type(error).__module__.startswith("pydantic"):
        return None
    found = error.errors(include_input=False, include_url=False, include_context=False)
    texts = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found)
    return f"{len(found)} validation error{'s' if len(found) > 1 else ''}: {'; '.join(texts)}"


class _LeftOut(Misfit):
    """A field that its class wants in no dump, so that there is no form to try."""


class _AnyEnum(Enums):
    def pack(self, member: object) -> bytes:
        return b""


_ANY_ENUM = _AnyEnum()


def _dumped(value: Any, mode: str = "python") -> Any:
    """Return what the model's own serializers say; a field of type Json, for instance, wants its text back."""
    plain = value.model_dump(mode=mode, round_trip=True, by_alias=False, warnings=False)
    fault = find_fault(plain, "", _ANY_ENUM)
    if fault is not None:
        raise Misfit(fault.lstrip())
    return plain


def _dumped_as_json(value: Any) -> Any:
    return _dumped(value, "json")


def _model_plain(value: Any) -> Any:
    kind = type(value)
    if getattr(kind, "__pydantic_root_model__", False):
        return _plain(value.root)
    left_out = [name for name, info in kind.model_fields.items() if info.exclude]
    if left_out:
        raise _LeftOut(f"is a {kind.__name__}, of which fields are left out of dumps: {', '.join(left_out)}").final()
    held = {name: value.__dict__[name] for name in kind.model_fields if name in value.__dict__}
    held |= value.__pydantic_extra__ or {}
    return {name: _at(f".{name}", _plain, item) for name, item in held.items()}


def _plain(value: Any) -> Any:
    """Return what pydantic makes an equal value of, in values that have a wire form."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list or kind in MARKS:
        return _row(value)
    if kind is dict:
        return _table(value)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate"):
        return _model_plain(value)
    if dataclasses.is_dataclass(kind):
        return {item.name: _at(f".{item.name}", _plain, getattr(value, item.name)) for item in dataclasses.fields(kind)}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return tuple(_plain(item) for item in value)
    if hasattr(kind, "get_secret_value"):
        return _plain(value.get_secret_value())
    try:
        leaf(value, _ANY_ENUM)
    except ValueError:
        return _text(value)
    return value


def _row(value: Any) -> Any:
    items = [_at(f"[{number}]", _plain, item) for number, item in enumerate(value)]
    try:
        return type(value)(items)
    except TypeError:  # a set of models, whose dicts have no hash; pydantic makes a set of a list as well
        return items


def _table(value: dict[Any, Any]) -> dict[Any, Any]:
    out = {}
    for key, item in value.items():
        plain = _plain(key)
        try:
            out[plain] = _at(f"[{shown(key)}]", _plain, item)
        except TypeError:
            raise Misfit(f"has the key {shown(key)}, which has no plain form that can be a key") from None
    return out


def _text(value: Any) -> Any:
    """Return the form in JSON of what has no wire form: a path, an address, a URL."""
    from pydantic_core import to_jsonable_python  # there is a model, so this is installed

    if isinstance(value, Iterator):  # looking at it would use it up
        raise Misfit(f"is a {type(value).__name__}, which can be read once only; pass a list")
    try:
        return to_jsonable_python(value)
    except ValueError:
        raise Misfit(f"is {shown(value)} of type {type(value).__name__}, which has no wire form") from None


def _at(place: str, change: Callable[[Any], Any], value: Any) -> Any:
    try:
        return change(value)
    except Misfit as misfit:
        misfit.under(place)
        raise
