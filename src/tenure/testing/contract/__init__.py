"""The contract that every broker keeps, as a suite of tests: subclass `BrokerContract`, and give it a fixture `site`.

    class TestMyBroker(BrokerContract):
        @pytest.fixture(scope="class")
        def site(self) -> Iterator[BrokerSite]:
            ...

docs/howto/write-a-broker.md shows a whole one.  Each part can be subclassed alone while a broker is being written.
"""

from __future__ import annotations

from tenure.testing.contract.adding import AddingContract
from tenure.testing.contract.keys import KeyContract
from tenure.testing.contract.leasing import LeasingContract, LeavingContract
from tenure.testing.contract.settling import AgainContract, SettlingContract
from tenure.testing.contract.site import Address, BrokerSite
from tenure.testing.contract.taking import TakingContract

__all__ = [
    "AddingContract",
    "Address",
    "AgainContract",
    "BrokerContract",
    "BrokerSite",
    "KeyContract",
    "LeasingContract",
    "LeavingContract",
    "SettlingContract",
    "TakingContract",
]


class BrokerContract(
    AddingContract,
    TakingContract,
    LeasingContract,
    LeavingContract,
    SettlingContract,
    AgainContract,
    KeyContract,
):
    """All of it."""
