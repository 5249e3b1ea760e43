"""What a verb may be given: a fault that cannot be must not pass for one that was survived.

Each returns the value, or raises ValueError naming it and what is possible.
"""

from __future__ import annotations

from math import isfinite


def count(name: str, value: object, least: int = 1) -> int:
    """Check a whole number of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r} is not possible: give a whole number of {least} or more")
    return value


def seconds(name: str, value: object) -> float:
    """Check a length of time above 0."""
    length = seconds_or_zero(name, value)
    if not length:
        raise ValueError(f"{name}={value!r} is not possible: give seconds above 0")
    return length


def seconds_or_zero(name: str, value: object) -> float:
    """Check a length of time, which may be 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise ValueError(f"{name}={value!r} is not possible: give a number of seconds, 0 or more")
    return value


def seconds_or_none(name: str, value: object) -> float | None:
    """Check a length of time above 0, or None for one without an end."""
    return None if value is None else seconds(name, value)
