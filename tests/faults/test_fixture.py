"""The fixture `faults`, in projects of its own: the page that shows it, and what becomes of good and bad tasks.

Pytest runs in a process of its own with no plugin but ours, as where nothing else than Tenure and pytest is installed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-your-tasks-against-faults.md"
BLOCKS = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
TESTS = {name: body for name, body in BLOCKS if name.startswith("test_")}

TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""Where pytester lets the project's tests have their temporary folders, and so their servers their files."""

BROKEN = """
import sys
from tenure import App

app = App("broken")

@app.task
def one():
    pass

if "pytest" not in sys.modules:
    raise LookupError("only in a worker")
"""

REPEATS = """
import pytest, shop

@pytest.mark.parametrize("task", [shop.charge, shop.charge_carelessly])
def test_it(task, books, faults):
    faults.lose_ack()
    task.delay(42, 999).wait(timeout=30)
    faults.check()
    assert len(list(books.iterdir())) == 1
"""

MISTAKES = """
import math
import pytest
from tenure.testing import faults_for

def test_numbers(books, faults):
    for seconds in (-1, 0, math.nan, math.inf):
        with pytest.raises(ValueError, match="seconds=.* is not possible: give"):
            faults.silent_server(seconds)
        with pytest.raises(ValueError, match="timeout=.* is not possible: give"):
            faults.kill_worker(timeout=seconds)
        with pytest.raises(ValueError, match="timeout=.* is not possible: give"):
            faults.check(timeout=seconds)
    for count in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="count=.* is not possible: give a whole number of 1 or more"):
            faults.lose_ack(count)
    with pytest.raises(TypeError, match="kill_worker takes a job, as task.delay.. returns it, not 3"):
        faults.kill_worker(3)
    with pytest.raises(ValueError, match="scheduled=-1 is not possible"):
        faults.check(scheduled=-1)
    faults.check()

def test_no_success_is_lost(books, faults):
    faults.lose_ack()
    faults.check()

def test_broken():
    with faults_for("broken:app"):
        pass

def test_both(faults, tenure_worker):
    pass
"""

BOOKS = """
import pytest

@pytest.fixture
def books(tmp_path, monkeypatch):
    folder = tmp_path / "books"
    folder.mkdir()
    monkeypatch.setenv("SHOP_BOOKS", str(folder))
    return folder
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with the page's app and configuration."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, body in BLOCKS:
        if name not in TESTS:
            (pytester.path / name).write_text(body, encoding="utf-8")
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run the project's tests, and fail where one of its processes is left."""
    result = project.run(sys.executable, "-m", "pytest", "-q", "-p", "tenure.testing.plugin", *args, timeout=55)
    assert [command for command in commands() if os.environ[TEMPORARY] in command] == []
    return result


def commands() -> Iterator[str]:
    """The commands of all processes that run."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # one that has ended meanwhile
            yield place.read_text(errors="replace").replace("\0", " ")


@pytest.mark.parametrize("name", TESTS)
def test_the_examples_of_the_page_pass(project: pytest.Pytester, name: str) -> None:
    (project.path / name).write_text(TESTS[name], encoding="utf-8")
    run(project).assert_outcomes(passed=TESTS[name].count("def test_"))


def test_no_example_is_left_out() -> None:
    assert sum(body.count("def test_") for body in TESTS.values()) == 6


def test_side_by_side_the_careless_task_fails_and_the_safe_one_passes(project: pytest.Pytester) -> None:
    project.makepyfile(conftest=BOOKS, test_it=REPEATS)
    result = run(project, "-p", "xdist", "-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_it?charge_carelessly? - *assert 2 == 1*"])
    result.stdout.fnmatch_lines(
        ["--- server.log", "tenure server on *", "--- worker.log", "*start shop.charge_careless*"]
    )


def test_what_cannot_be_is_said(project: pytest.Pytester) -> None:
    project.makepyfile(conftest=BOOKS, broken=BROKEN, test_it=MISTAKES)
    result = run(project)
    result.assert_outcomes(passed=1, failed=2, errors=1)
    for line in (
        "*lose_ack: 1 more successes were to be lost, and none came",
        "*RuntimeError: tenure worker -A broken:app * ended with exit code 1:",
        "*LookupError: only in a worker",
        "*a test has either faults, with a server, or tenure_app and tenure_worker, without",
    ):
        result.stdout.fnmatch_lines([line])
