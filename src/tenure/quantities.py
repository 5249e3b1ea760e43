"""Lengths of time and sizes, as people write them: `30s`, `1h`, `64KiB`."""

from __future__ import annotations

_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def size_of(text: str) -> int:
    """Read a number of bytes, with KiB, MiB or GiB behind it if wanted; raises ValueError saying how to write one."""
    plain = text.strip().lower().removesuffix("ib").removesuffix("b").rstrip()
    number, unit = (plain[:-1].rstrip(), plain[-1]) if plain[-1:] in ("k", "m", "g") else (plain, "")
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"{text!r} is not a size; write bytes, or for example 64KiB or 1MiB")
    return int(number) * _SIZES[unit]


def seconds_of(text: str) -> float:
    """Read a length of time, in seconds or with s, m, h or d behind it; raises ValueError saying how to write one."""
    plain = text.strip().lower()
    number, unit = (plain[:-1], plain[-1]) if plain[-1:] in _TIMES else (plain, "s")
    try:
        length = float(number) * _TIMES[unit]
    except ValueError:
        length = -1.0
    if not 0 <= length < 1e10:
        raise ValueError(f"{text!r} is not a length of time; write seconds, or for example 30s, 10m, 1h or 2d")
    return length


def whole_of(text: str) -> int:
    """Read a whole number; raises ValueError."""
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)
