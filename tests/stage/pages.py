"""The examples of the pages in docs/howto, for the tests that hold them to what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tenure.testing import InlineWorker

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(page: str) -> str:
    """Return all of a page."""
    return (HOWTO / page).read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[str]:
    """Return a page's examples in one language."""
    return [code for kind, code in _BLOCK.findall(text(page)) if kind == language]


def loaded(page: str) -> dict[str, Any]:
    """Run all Python of a page as one module, `shop`, and return its names."""
    names: dict[str, Any] = {"__name__": "shop"}
    for code in blocks(page):
        exec(compile(code, page, "exec", dont_inherit=True), names)
    return names


class Page:
    """The names of a page's code, with a worker that runs its jobs."""

    def __init__(self, names: dict[str, Any], worker: InlineWorker) -> None:
        self.names = names
        self.worker = worker

    def __getattr__(self, name: str) -> Any:
        return self.names[name]
