"""How long to wait before the next try, as pure functions; `roll` is the jitter, from 0 to 1, passed in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import isfinite

from tenure.errors import ConfigError

MAX_DELAY = 36_525 * 86_400.0
"""Seconds, a hundred years: what is further away is taken for a mistake of units."""

MAX_RETRY_AFTER = 7 * 86_400.0
"""Seconds: an exception that asks for a longer pause than a week is not believed."""


@dataclass(frozen=True)
class Backoff:
    """The pause after a failed attempt: `base` seconds, `factor` times longer each time, at most `cap` seconds.

    Without a `cap` it grows without end.  With `jitter` the pause is anywhere between half and the whole of that, so
    that jobs that fail together do not come back together; without, it is exactly that.  Raises ConfigError.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float | None = None
    jitter: bool = True

    def __post_init__(self) -> None:
        for name, least in (("base", 0.0), ("factor", 1.0), ("cap", 0.0)):
            value = getattr(self, name)
            if name == "cap" and value is None:
                continue
            if type(value) not in (int, float) or not isfinite(value) or value < least:
                hint = ", or None for no cap" if name == "cap" else ""
                rule = f"give a number of at least {least:g}{hint}"
                raise ConfigError(f"Backoff({name}={value!r}) is not possible: {rule}")
        if type(self.jitter) is not bool:
            raise ConfigError(f"Backoff(jitter={self.jitter!r}) is not possible: give True or False")

    def delay(self, attempt: int, roll: float) -> float:
        """Return the pause in seconds after attempt number `attempt` (from 1), at most a hundred years."""
        cap = MAX_DELAY if self.cap is None else min(self.cap, MAX_DELAY)
        try:
            whole = min(cap, self.base * float(self.factor) ** (attempt - 1))
        except OverflowError:  # a power that large is above any cap
            whole = cap if self.base else 0.0
        return whole * (0.5 + 0.5 * roll) if self.jitter else whole


DEFAULT_BACKOFF = Backoff(cap=3600.0)
"""Of tasks that say nothing: one second, doubling to an hour."""


def delay_after(after: float, roll: float) -> float:
    """Return the pause for an exception that asks for `after` seconds: not less, and up to a tenth more.

    A service that turns everyone away at once names the same pause to all of them.
    """
    return after * (1.0 + 0.1 * roll)


def as_seconds(value: object) -> float | None:
    """Return a number of seconds or a timedelta as a float; None when it is neither, below 0 or not finite."""
    if type(value) is timedelta:
        value = value.total_seconds()
    if type(value) is not int and type(value) is not float:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None


RECONNECT_FIRST = 0.015
RECONNECT_FACTOR = 1.4
RECONNECT_MAX = 1.0


def reconnect_delay(attempt: int, roll: float) -> float:
    """Return the seconds to wait after connection try number `attempt` (from 1): between half and the whole of a delay.

    Ten tries that fail and the one after them fit into 2 s with room to spare, so that the restart of a server costs
    little; later ones are at most 1 s apart.
    """
    # The exponent is bounded because the power of a large attempt number would overflow.
    whole = min(RECONNECT_MAX, RECONNECT_FIRST * RECONNECT_FACTOR ** min(attempt - 1, 40))
    return whole * (0.5 + 0.5 * roll)
