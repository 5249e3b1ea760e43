"""A Redis cluster keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.contract import BrokerContract, BrokerSite
from tests.contract.cluster_site import ClusterSite


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    """One cluster for all tests."""
    site = ClusterSite(tmp_path_factory.mktemp("contract"))
    try:
        yield site
    finally:
        site.close()


class TestRedisCluster(BrokerContract):
    """All of it."""
