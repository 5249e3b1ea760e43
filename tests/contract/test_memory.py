"""`memory://` keeps the contract, as far as one process reaches."""

from __future__ import annotations

import pytest

from tenure.testing.contract import BrokerContract, BrokerSite
from tests.contract.sites import MemorySite


@pytest.fixture
def site() -> BrokerSite:
    """A site for each test: one of them may move the clock by a day."""
    return MemorySite()


class TestMemory(BrokerContract):
    """All of it."""
