"""`tenure server` keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.contract import BrokerContract, BrokerSite
from tests.contract.sites import ServerSite


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    """One server for all tests."""
    site = ServerSite(tmp_path_factory.mktemp("contract"))
    try:
        yield site
    finally:
        site.close()


class TestServer(BrokerContract):
    """All of it."""
