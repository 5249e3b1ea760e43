"""A Redis that a Sentinel watches keeps what of the contract depends on the way to the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.contract import BrokerSite
from tests.contract.redis_site import WayContract
from tests.contract.sentinel_site import SentinelSite


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    """One primary and its Sentinel for all tests."""
    site = SentinelSite(tmp_path_factory.mktemp("contract"))
    try:
        yield site
    finally:
        site.close()


class TestRedisSentinel(WayContract):
    """Those parts."""
