"""The README and the tutorial name only what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tenure.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/tutorial/first-app.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(text(page)) if kind == language]


def commands(page: str) -> list[list[str]]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [shlex.split(line[2:]) for line in lines]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one(page: str) -> None:
    named = [words[1] for words in commands(page) if words[0] == "tenure"]
    assert {"server", "worker"} <= set(named) <= set(COMMANDS)


def test_every_make_target_is_one() -> None:
    makefile = text("Makefile")
    named = [words[1] for words in commands("README.md") if words[0] == "make"]
    assert named == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)


def test_the_first_app_has_at_most_15_lines_and_is_the_same_in_the_tutorial() -> None:
    (app,) = blocks("README.md", "python")
    assert len([line for line in app.splitlines() if line]) <= 15
    assert blocks("docs/tutorial/first-app.md", "python")[0] == app


def test_every_code_block_is_python() -> None:
    for page in PAGES:
        for code in blocks(page, "python"):
            compile(code, page, "exec")


def test_what_is_not_there_yet_is_listed_once() -> None:
    listed = re.findall(r"^- \*\*(.+?)\.\*\*", text("README.md").partition("does not do yet\n")[2], re.MULTILINE)
    assert "Schedules and workflows" in listed
    assert len(listed) == len(set(listed))


def test_the_way_to_test_without_a_server_is_told() -> None:
    told = text("README.md").partition("## What else a task can do")[2].partition("\n## ")[0]
    assert all(word in told for word in ("`memory://`", "`tenure_app`", "`tenure_worker`"))
