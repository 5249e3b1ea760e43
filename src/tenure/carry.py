"""Context variables whose values travel with a job: packed where it is added, set again where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from tenure.codec import pack_value, unpack_value
from tenure.errors import ConfigError, NotSerializable
from tenure.leaves import Enums
from tenure.message import CARRIED
from tenure.names import shown

MAX_CARRIED_BYTES = 4096
"""Upper limit for all carried values of one job: they are stored with it, and sent with every hand-out."""

_UNSET = object()

Carried = Mapping[str, ContextVar[Any]]
"""The variables that an app carries, by their names."""


def with_variable(carried: Carried, variable: object) -> Carried:
    """Return the variables with one more; raises ConfigError for what is none, and for a second one of a name."""
    if not isinstance(variable, ContextVar):
        raise ConfigError(f"app.carry takes a contextvars.ContextVar, not {shown(variable)}")
    if carried.get(variable.name, variable) is not variable:
        raise ConfigError(
            f"app.carry was given two context variables named {variable.name!r}, by which their values travel; "
            "rename one of them"
        )
    return {**carried, variable.name: variable}


def put_in(headers: Mapping[str, Any], carried: Carried, enums: Enums) -> Mapping[str, Any]:
    """Return the headers with what the variables hold here, where any is set; raises NotSerializable."""
    values = {name: variable.get(_UNSET) for name, variable in carried.items()}
    packed = {
        name: pack_value(value, f"the carried context variable {name}", enums)
        for name, value in values.items()
        if value is not _UNSET
    }
    size = sum(len(name.encode()) + len(data) for name, data in packed.items())
    if size > MAX_CARRIED_BYTES:
        raise NotSerializable(
            f"the carried context variables {', '.join(packed)} have {size} bytes, limit {MAX_CARRIED_BYTES}; "
            "carry an id, and look the rest up in the task"
        )
    return {**headers, CARRIED: packed} if packed else headers


def set_again(headers: Mapping[str, Any], carried: Carried, enums: Enums) -> None:
    """Set the variables of this context to what travelled with the job; raises DecodeError.

    A value whose variable is not carried here is left alone: the job may come from newer code.
    """
    packed = headers.get(CARRIED)
    for name, data in packed.items() if type(packed) is dict else ():
        variable = carried.get(name)
        if variable is not None and type(data) is bytes:
            variable.set(unpack_value(data, enums))
