"""The fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.property.lab import Lab
from tests.unit.proxied import connect, echo, pair, proxy

__all__ = ["connect", "echo", "lab", "pair", "proxy"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A server in memory, and clocks that the test moves."""
    lab = Lab()
    yield lab
    lab.close()
