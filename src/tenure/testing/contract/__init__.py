"""The contract that every broker keeps, as a suite of tests: subclass `BrokerContract`, and give it a fixture `site`.

    class TestMyBroker(BrokerContract):
        @pytest.fixture(scope="class")
        def site(self) -> Iterator[BrokerSite]:
            ...

docs/howto/write-a-broker.md shows a whole one.  Each part can be subclassed alone while a broker is being written.
"""

from __future__ import annotations

from tenure.testing.contract.accounts import RecordContract
from tenure.testing.contract.across import AcrossQueuesContract
from tenure.testing.contract.adding import AddingContract
from tenure.testing.contract.base import ContractPart
from tenure.testing.contract.keys import KeyContract
from tenure.testing.contract.leasing import LeasingContract, LeavingContract
from tenure.testing.contract.network import NetworkContract
from tenure.testing.contract.operating import CancelContract, DeadListContract, QueueContract
from tenure.testing.contract.raw import GarbageContract
from tenure.testing.contract.restarting import RestartContract
from tenure.testing.contract.results import ResultContract
from tenure.testing.contract.settling import AgainContract, SettlingContract
from tenure.testing.contract.site import Address, BrokerSite
from tenure.testing.contract.taking import TakingContract
from tenure.testing.contract.timing import OrderContract, TimeContract
from tenure.testing.contract.weather import WeatherContract

__all__ = [
    "AcrossQueuesContract",
    "AddingContract",
    "Address",
    "AgainContract",
    "BrokerContract",
    "BrokerSite",
    "CancelContract",
    "ContractPart",
    "DeadListContract",
    "GarbageContract",
    "KeyContract",
    "LeasingContract",
    "LeavingContract",
    "NetworkContract",
    "OrderContract",
    "QueueContract",
    "RecordContract",
    "RestartContract",
    "ResultContract",
    "SettlingContract",
    "TakingContract",
    "TimeContract",
    "WeatherContract",
]


class BrokerContract(
    AddingContract,
    TakingContract,
    LeasingContract,
    LeavingContract,
    SettlingContract,
    AgainContract,
    KeyContract,
    TimeContract,
    OrderContract,
    AcrossQueuesContract,
    ResultContract,
    DeadListContract,
    CancelContract,
    QueueContract,
    RecordContract,
    GarbageContract,
    NetworkContract,
    WeatherContract,
    RestartContract,
):
    """All of it."""
