"""The broker of docs/howto/write-a-broker.md keeps the contract, with most of it left out and said to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.brokers import SCHEMES
from tenure.testing.contract import BrokerContract, BrokerSite
from tests.stage.pages import blocks, loaded

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


def test_its_code_in_a_file_is_all_that_a_project_needs(tmp_path: Path) -> None:
    (tmp_path / "test_shelf.py").write_text("\n\n".join(blocks("write-a-broker.md")), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "AddingContract and sent_again"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert re.search(r"^2 passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout + done.stderr
