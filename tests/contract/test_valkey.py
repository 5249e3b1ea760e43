"""Valkey keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.contract import BrokerContract, BrokerSite
from tests.contract.redis_site import RedisSite
from tests.stage.redis_servers import ValkeyServer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    """One server for all tests."""
    site = RedisSite(ValkeyServer(tmp_path_factory.mktemp("contract")))
    try:
        yield site
    finally:
        site.close()


class TestValkey(BrokerContract):
    """All of it."""
