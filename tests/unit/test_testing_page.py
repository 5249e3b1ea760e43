"""The examples of docs/howto/test-your-tasks.md run: each block that names a file becomes that file of a project."""

from __future__ import annotations

import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-your-tasks.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_the_examples_of_the_page_pass(pytester: pytest.Pytester) -> None:
    for _, name, body in BLOCKS:
        if name:
            (pytester.path / name).write_text(body, encoding="utf-8")
    tests = sum(body.count("def test_") for _, name, body in BLOCKS if name)
    known = any(point.value == "tenure.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "tenure.testing.plugin"]
    result = pytester.run(sys.executable, "-m", "pytest", "-q", *plugin, timeout=50)
    result.assert_outcomes(passed=tests)
    assert tests > 10


def test_every_block_is_what_it_says() -> None:
    for kind, name, body in BLOCKS:
        assert kind in ("python", "ini")
        if kind == "python":
            compile(body, name or "block", "exec")
