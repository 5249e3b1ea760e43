"""How the arguments of a call meet the parameters of its task's function."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from tenure.codec import pack_value
from tenure.errors import NotSerializable
from tenure.names import did_you_mean


class Binding:
    """The parameters that callers of a task fill, and the rule by which they do; a worker fills those in `others`."""

    def __init__(self, task: str, signature: inspect.Signature, others: Collection[str] = ()) -> None:
        self.signature = signature
        self._others = others
        self._task = task
        self._unfit = _unfit_defaults(signature)
        self._places = _plain_places(signature, self._unfit)

    def filled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Return all arguments in order, defaults filled in; None where only a full binding can tell.

        It does in a microsecond what `inspect.Signature.bind` does in ten, for functions with plain parameters.
        """
        places = self._places
        if places is None:
            return None
        if not kwargs and len(args) == len(places):
            return args
        filled = list(args)
        named = 0
        for name, default in places[len(args) :]:
            if name in kwargs:
                named += 1
                filled.append(kwargs[name])
            elif default is inspect.Parameter.empty:
                return None
            else:
                filled.append(default)
        return tuple(filled) if named == len(kwargs) and len(filled) == len(places) else None

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError unless the function can be called so."""
        if self.filled(args, kwargs) is None:
            self._bound(args, kwargs)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return the arguments by the names of their parameters, defaults filled in; raises TypeError."""
        bound = self._bound(args, kwargs)
        bound.apply_defaults()
        return bound

    def without_wire_form(self, bound: inspect.BoundArguments) -> list[str]:
        """Return the parameters that have a default without a wire form, and still have that default."""
        return [name for name in self._unfit if self._is_default(name, bound.arguments[name])]

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        passed = [word for word in kwargs if word in self._others]
        if passed:
            raise TypeError(
                f"{self._task}() got {passed[0]!r}, which a worker fills (Depends); leave it out of the call"
            )
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            also = _strangers(self.signature, kwargs, str(error))
            if self._others and "too many" in str(error):
                also = f"; a worker fills {', '.join(self._others)} (Depends)"
            raise TypeError(f"{self._task}() {error}{also}") from None

    def _is_default(self, name: str, value: object) -> bool:
        """Whether an argument is its parameter's default, or one that cannot be told from it."""
        default = self.signature.parameters[name].default
        if value is default:
            return True
        try:
            return type(value) is type(default) and bool(value == default)
        except Exception:  # noqa: BLE001  (the value's own code may raise anything)
            return False


def _strangers(signature: inspect.Signature, kwargs: Mapping[str, Any], said: str) -> str:
    """Return what to add to the error of a call about keywords that the function does not have."""
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    unknown = [word for word in kwargs if word not in signature.parameters]
    if not unknown or inspect.Parameter.VAR_KEYWORD in kinds:
        return ""
    also = "" if "unexpected keyword" in said else f", and got an unexpected keyword argument {unknown[0]!r}"
    hint = did_you_mean(unknown[0], signature.parameters)
    return also + (f".{hint}" if hint else "")


def _plain_places(signature: inspect.Signature, unfit: frozenset[str]) -> tuple[tuple[str, Any], ...] | None:
    """Return names and defaults of the parameters if all are plain ones, else None."""
    parameters = signature.parameters.values()
    if unfit or any(parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
        return None
    return tuple((parameter.name, parameter.default) for parameter in parameters)


def _unfit_defaults(signature: inspect.Signature) -> frozenset[str]:
    """Return the parameters whose defaults have no wire form: the fingerprint goes without such a default."""
    return frozenset(
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty and not _packs(parameter.default)
    )


def _packs(value: object) -> bool:
    try:
        pack_value(value)
    except NotSerializable:
        return False
    return True
