"""CONTRIBUTING.md names the modules, their layers and the commands that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PACKAGE = ROOT / "src" / "tenure"


def layers_that_are_checked() -> list[set[str]]:
    """The layers of pyproject.toml from the lowest to the highest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["tenure"])
    return [set(re.findall(r"\w+", layer)) for layer in reversed(layers)]


def layers_that_are_told() -> list[set[str]]:
    """The rows of the table from layer 0 up; what stands alone above the highest row comes after it."""
    rows = re.findall(r"^\| (\d) [^|]*\| (.*) \|$", TEXT, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(len(rows)))[::-1]
    (_, faces), *lower = rows
    faces, _, above = faces.partition("; alone above them ")
    told = [*(modules for _, modules in reversed(lower)), faces, above]
    return [set(re.findall(r"`(\w+)`", modules)) for modules in told]


def test_the_table_of_layers_is_what_is_checked() -> None:
    assert layers_that_are_told() == layers_that_are_checked()


def test_every_module_has_its_place_and_what_is_not_there_yet_is_said() -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    told = set.union(*layers_that_are_told())
    assert there <= told
    (missing,) = re.findall(r"^- (.*) (?:is|are) not there yet", TEXT, re.MULTILINE)
    assert told - there == set(re.findall(r"`(\w+)`", missing))


def test_every_command_of_make_is_in_the_table() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^#   make ([\w-]+)", makefile, re.MULTILINE))
    assert "reference" in targets
    assert set(re.findall(r"^\| `make ([\w-]+)` \|", TEXT, re.MULTILINE)) == targets
