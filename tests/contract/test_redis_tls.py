"""Redis behind TLS keeps what of the contract depends on the way to the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.testing.contract import BrokerSite
from tests.contract.redis_site import RedisSite, WayContract
from tests.stage.redis_servers import TlsServer, certificate


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSite]:
    """One server for all tests."""
    folder = tmp_path_factory.mktemp("contract")
    pem = certificate(folder)
    site = RedisSite(TlsServer(folder / "redis", pem), f"?ssl_ca_certs={pem}")
    try:
        yield site
    finally:
        site.close()


class TestRedisTls(WayContract):
    """Those parts."""
