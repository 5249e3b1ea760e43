"""Wrong calls are red in mypy and in pyright, and right ones have the type that the task's function gives them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("calls.py")
RIGHT = [str(file) for file in sorted(CALLS.parent.glob("*.py")) if file.name not in ("calls.py", Path(__file__).name)]

# A line that a user might write, and what each checker has to say about it.
WRONG = [
    ("charge('42', 999)", "arg-type", "reportArgumentType"),
    ("charge.delay('42', 999)", "arg-type", "reportArgumentType"),
    ("charge.delay(42, pennies=999)", "call-arg", "reportCallIssue"),
    ("charge.delay()", "call-arg", "reportCallIssue"),
    ("charge.delay(1, 2, 3)", "call-arg", "reportCallIssue"),
    ("charge.s(42, cents='999')", "arg-type", "reportArgumentType"),
    ("charge.options(priority=1).delay('42')", "arg-type", "reportArgumentType"),
    ("charge.options(priority=1).s(1, 2, 3)", "call-arg", "reportCallIssue"),
    ("charge.options(countdown=3)", "call-arg", "reportCallIssue"),
    ("charge.options(delay='soon')", "arg-type", "reportArgumentType"),
    ("charge.s(1).options(max_retries=3)", "call-arg", "reportCallIssue"),
    ("app.task(max_retries=3)", "call-overload", "reportCallIssue"),
    ("app.add_many([charge.delay(1)])", "arg-type", "reportArgumentType"),
    ("number: int = charge(1)", "assignment", "reportAssignmentType"),
    ("job: Job[int] = charge.delay(1)", "assignment", "reportAssignmentType"),
    ("charge.delay(1).id = 'x'", "misc", "reportAttributeAccessIssue"),
    ("current_job.attempt + 'x'", "operator", "reportOperatorIssue"),
    ("export.delay(JobContext.for_test(), 'orders')", "arg-type", "reportArgumentType"),
    ("export.delay(3)", "arg-type", "reportArgumentType"),
    ("export('orders')", "call-arg", "reportCallIssue"),
    ("export.delay('orders', ctx=None)", "call-arg", "reportCallIssue"),
    ("fetch.s()", "call-arg", "reportCallIssue"),
    ("wrong: int = head('https://example.org')", "assignment", "reportAssignmentType"),
    ("head.adelay(3)", "arg-type", "reportArgumentType"),
    ("charge.s(1).delay(2)", "call-arg", "reportCallIssue"),
    ("charge.options(delay=1).adelay('42')", "arg-type", "reportArgumentType"),
    ("export.options(priority=1).delay(3)", "arg-type", "reportArgumentType"),
    ("fetch.options(priority=1).s(url=3)", "arg-type", "reportArgumentType"),
    ("count: int = charge.delay(1).result()", "assignment", "reportAssignmentType"),
    ("charge.delay(1).result(timeout='soon')", "arg-type", "reportArgumentType"),
    ("size: int = fetch.delay('x').result(timeout=1)", "assignment", "reportAssignmentType"),
    ("found: Job[int] = app.job('0' * 32, charge)", "arg-type", "reportAssignmentType"),
    ("app.add_many(charge.s(1))", "arg-type", "reportArgumentType"),
    ("added: list[Job[int] | AddError] = app.add_many([charge.s(1)])", "list-item", "reportAssignmentType"),
    ("app.job('0' * 32, 'charge')", "call-overload", "reportArgumentType"),
    ("deliver.delay(3)", "arg-type", "reportArgumentType"),
    ("collect.delay('box')", "arg-type", "reportArgumentType"),
    ("app.send(charge, 42)", "arg-type", "reportArgumentType"),
    ("app.send('charge', [42], countdown=3)", "call-arg", "reportCallIssue"),
    ("app.add_group('mail')", "arg-type", "reportArgumentType"),
    ("app.on_dead(charge.delay)", "type-var", "reportArgumentType"),
    ("app.on_worker_start(charge)", "type-var", "reportArgumentType"),
    ("JobContext.for_test().progress('half')", "arg-type", "reportArgumentType"),
]


@pytest.fixture(scope="module")
def wrong_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The right calls with the wrong ones below, and the number of the first wrong line."""
    right = CALLS.read_text()
    file = tmp_path_factory.mktemp("typing") / "wrong_calls.py"
    file.write_text(right + "".join(f"{line}\n" for line, _, _ in WRONG))
    return file, right.count("\n") + 1


def run(*command: str) -> str:
    environ = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=55, check=False)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return result.stdout


def expected(first: int, column: int) -> dict[int, str]:
    return {first + n: case[column] for n, case in enumerate(WRONG)}


def test_mypy(wrong_file: tuple[Path, int]) -> None:
    file, first = wrong_file
    output = run(sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file), *RIGHT)
    found: dict[int, set[str]] = {}
    for name, line, code in re.findall(r"^(.*\.py):(\d+): error: .*\[([\w-]+)\]$", output, re.MULTILINE):
        assert name.endswith("wrong_calls.py"), output
        found.setdefault(int(line), set()).add(code)
    wanted = expected(first, 1)
    assert found.keys() == wanted.keys(), output
    assert all(code in found[line] for line, code in wanted.items()), output


def test_pyright(wrong_file: tuple[Path, int]) -> None:
    file, first = wrong_file
    report = json.loads(run(sys.executable, "-m", "pyright", "--outputjson", str(file), *RIGHT))
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    assert {Path(item["file"]).name for item in errors} == {file.name}, json.dumps(errors, indent=1)
    found = {item["range"]["start"]["line"] + 1: item["rule"] for item in errors}
    assert found == expected(first, 2), json.dumps(report["generalDiagnostics"], indent=1)
