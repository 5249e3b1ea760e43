"""The fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure import App
from tenure.worker.loop import Loop
from tests.property.lab import Lab
from tests.unit.fake_broker import FakeBroker
from tests.unit.proxied import connect, echo, pair, proxy

__all__ = ["app", "broker", "connect", "echo", "lab", "loop", "pair", "proxy"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A server in memory, and clocks that the test moves."""
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture
def broker() -> FakeBroker:
    """A broker that keeps what is added."""
    return FakeBroker()


@pytest.fixture
def app(broker: FakeBroker) -> App:
    """An app that adds to the broker of the test."""
    return App("shop", broker=broker)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """The event loop of a worker process."""
    loop = Loop()
    loop.start()
    yield loop
    loop.stop()
