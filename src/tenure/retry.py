"""How long to wait before the next try, as pure functions; `roll` is the jitter, from 0 to 1, passed in."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tenure.errors import ConfigError


@dataclass(frozen=True)
class Backoff:
    """The pause after a failed attempt: `base` seconds, `factor` times longer each time, at most `cap` seconds."""

    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0

    def __post_init__(self) -> None:
        for name, least in (("base", 0.0), ("factor", 1.0), ("cap", 0.0)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not isfinite(value) or value < least:
                raise ConfigError(f"Backoff({name}={value!r}) is not possible: give a number of at least {least:g}")

    def delay(self, attempt: int, roll: float) -> float:
        """Return the pause in seconds after attempt number `attempt` (from 1): between half and the whole of it."""
        try:
            whole = min(self.cap, self.base * float(self.factor) ** (attempt - 1))
        except OverflowError:  # a power that large is above any cap
            whole = self.cap
        return whole * (0.5 + 0.5 * roll)


RECONNECT_FIRST = 0.015
RECONNECT_FACTOR = 1.5
RECONNECT_MAX = 1.0


def reconnect_delay(attempt: int, roll: float) -> float:
    """Return the seconds to wait after connection try number `attempt` (from 1): between half and the whole of a delay.

    Ten tries fit into 2 s together, so that the restart of a server costs little; later ones are at most 1 s apart.
    """
    # The exponent is bounded because the power of a large attempt number would overflow.
    whole = min(RECONNECT_MAX, RECONNECT_FIRST * RECONNECT_FACTOR ** min(attempt - 1, 40))
    return whole * (0.5 + 0.5 * roll)
