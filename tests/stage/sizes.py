"""How much a test does: little in CI, all of it with `TENURE_SOAK=1` (`make soak`)."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("TENURE_SOAK") == "1"


def sized(short: T, full: T) -> T:
    """Return what CI takes, or what a soak takes."""
    return full if SOAK else short


def seeds(short: int, full: int) -> list[int]:
    """Return the seeds to go through; `TENURE_FAULT_SEED=7` asks for that one alone."""
    asked = os.environ.get("TENURE_FAULT_SEED")
    return [int(asked)] if asked else list(range(1, sized(short, full) + 1))
