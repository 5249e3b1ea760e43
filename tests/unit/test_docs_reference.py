"""The reference pages are what the code says now, and leave out nothing that is public."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tenure
from docs import make_reference
from tenure import faults, testing

MADE = make_reference.pages()
HEADING = re.compile(r"^### (\S+)$", re.MULTILINE)
PUBLIC = {*tenure.__all__, *testing.__all__, *faults.__all__} - {"__version__"}


@pytest.mark.parametrize("name", MADE)
def test_the_page_is_up_to_date(name: str) -> None:
    page = make_reference.FOLDER / name
    written = page.read_text(encoding="utf-8") if page.exists() else ""
    assert written == MADE[name], f"docs/reference/{name} is not what the code says now: run `make reference`"


def test_it_is_made_the_same_each_time() -> None:
    assert make_reference.pages() == MADE
    assert not [name for name, page in MADE.items() if " object at 0x" in page]


def test_everything_public_is_described_once() -> None:
    described = HEADING.findall(MADE["api.md"])
    assert set(described) >= PUBLIC
    assert len(described) == len(set(described))


def test_everything_described_has_words() -> None:
    parts = re.split(r"^#{3,4} ", MADE["api.md"], flags=re.MULTILINE)[1:]
    blocks = re.compile(r"```.*?```", re.DOTALL)
    assert [part for part in parts if len(blocks.sub("", part).split("\n\n")) < 2] == []


def test_what_is_left_out_is_there() -> None:
    things = {name: thing for section in make_reference.sections() for name, thing in section.things}
    for owner, names in make_reference.FOR_TENURE_ITSELF.items():
        assert [name for name in names if not hasattr(things[owner], name) and name not in fields(things[owner])] == []
    assert set(things) >= make_reference.MADE_BY_TENURE


def fields(thing: object) -> set[str]:
    return set(getattr(thing, "__dataclass_fields__", ()))


def test_it_writes_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_reference, "FOLDER", tmp_path)
    make_reference.write()
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == MADE
