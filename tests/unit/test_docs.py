"""The pages of documentation: each can be found, each link leads somewhere, each example is one that a test runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
HOWTO = sorted((DOCS / "howto").glob("*.md"))
FENCED = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[tuple[Path, str]]:
    """The files and anchors that a page links to, within the project."""
    found = LINK.findall(prose(page))
    return [
        ((page.parent / target).resolve() if target else page, anchor[1:])
        for target, anchor in found
        if "://" not in target
    ]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = [str(target) for target, _ in links(page) if not target.exists()]
    missing += [f"{target.name}#{anchor}" for target, anchor in links(page) if anchor and anchor not in anchors(target)]
    assert missing == []


def test_the_index_names_every_page() -> None:
    indexed = {target for target, _ in links(INDEX)}
    assert [name(page) for page in sorted(DOCS.rglob("*.md")) if page not in (indexed | {INDEX})] == []


def test_the_readme_leads_to_the_index_and_to_every_howto_page() -> None:
    assert {INDEX, *HOWTO} <= {target for target, _ in links(ROOT / "README.md")}


@pytest.mark.parametrize("page", HOWTO, ids=name)
def test_a_test_runs_the_examples_of_the_page(page: Path) -> None:
    tests = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    assert [body for kind, body in FENCED.findall(page.read_text(encoding="utf-8")) if kind == "python"]
    assert any(page.name in text for text in tests)
