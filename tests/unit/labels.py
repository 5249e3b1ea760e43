"""Labels for cases, the same in every process: tests that run in several of them are told apart by these."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def label(value: object) -> str:
    """Return the beginning of a value's text; of one with a set in it, whose order may be any, its class."""
    text = _ADDRESS.sub("", repr(value))
    return type(value).__name__ if "{" in text else text[:50]
