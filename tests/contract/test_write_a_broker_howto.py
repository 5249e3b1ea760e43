"""The broker of docs/howto/write-a-broker.md keeps the contract, with most of it left out and said to be."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.brokers import SCHEMES
from tenure.testing.contract import BrokerContract, BrokerSite
from tests.stage.pages import loaded

PAGE: dict[str, Any] = loaded("write-a-broker.md")
MODULE: str = SCHEMES.pop("shelf")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> BrokerSite:
    """The page's own site; the page is no file that could be imported for its scheme, so a module stands for it."""
    monkeypatch.setitem(SCHEMES, "shelf", MODULE)
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(**PAGE))
    shelf_site: BrokerSite = PAGE["ShelfSite"]()
    return shelf_site


class TestShelf(BrokerContract):
    """All of it."""


def test_the_page_subclasses_all_of_it() -> None:
    assert PAGE["TestShelf"].__bases__ == (BrokerContract,)
