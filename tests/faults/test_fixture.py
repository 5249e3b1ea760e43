"""The fixture `faults`, in projects of its own: the page that shows it, and what becomes of good and bad tasks."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-your-tasks-against-faults.md"
BLOCK = re.compile(r"^```(\w+) file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with the page's app and configuration."""
    for _, name, body in BLOCKS:
        if not name.startswith("test_"):
            (pytester.path / name).write_text(body, encoding="utf-8")
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest in a process of its own, the plugin named where the installed package does not name it yet."""
    known = any(point.value == "tenure.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "tenure.testing.plugin"]
    return project.run(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *plugin, *args, timeout=55)


def assert_nothing_runs(project: pytest.Pytester) -> None:
    """Fail where a process is left whose command names a file of the project."""
    left = subprocess.run(["pgrep", "-a", "-f", str(project.path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_the_examples_of_the_page_pass_side_by_side(project: pytest.Pytester) -> None:
    tests = 0
    for _, name, body in BLOCKS:
        (project.path / name).write_text(body, encoding="utf-8")
        tests += body.count("def test_")
    run(project, "-n", "2").assert_outcomes(passed=tests)
    assert tests == 5
    assert_nothing_runs(project)


def test_a_careless_task_fails_and_a_system_that_does_not_start_says_why(project: pytest.Pytester) -> None:
    project.makepyfile(
        broken="import tenure\napp = tenure.App('broken')\n\n@app.task\ndef one():\n    pass\n\n"
        "import os\nif 'PYTEST_CURRENT_TEST' in os.environ and 'pytest' not in __import__('sys').modules:\n"
        "    raise LookupError('only in a worker')\n",
        test_it="""
        import shop, pytest
        from tenure.testing import faults_for

        def count(task, faults, folder):
            faults.lose_ack()
            task.delay(42, 999).wait(timeout=30)
            faults.check()
            return len(list(folder.iterdir()))

        @pytest.fixture
        def books(tmp_path, monkeypatch):
            folder = tmp_path / "books"
            folder.mkdir()
            monkeypatch.setenv("SHOP_BOOKS", str(folder))
            return folder

        @pytest.mark.parametrize("task", [shop.charge, shop.charge_carelessly])
        def test_repeat(task, books, faults):
            assert count(task, faults, books) == 1

        def test_no_success_is_lost(books, faults):
            faults.lose_ack()
            faults.check()

        def test_broken():
            with faults_for("broken:app"):
                pass

        def test_either(faults, tenure_worker):
            pass
        """,
    )
    result = run(project, "-n", "2")
    result.assert_outcomes(passed=1, failed=3, errors=1)
    text = result.stdout.str()
    assert "assert 2 == 1" in text
    assert "test_repeat[task1]" in text or "charge_carelessly" in text
    assert "lose_ack: 1 more successes were to be lost, and none came" in text
    assert "LookupError: only in a worker" in text
    assert "a test has either faults, with a server, or tenure_app and tenure_worker, without" in text
    assert "--- server.log" in text
    assert "--- worker.log" in text
    assert_nothing_runs(project)
