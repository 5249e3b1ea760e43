"""What all tests share: hypothesis profiles, and the time that each kind of test took against its budget."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from tests.stage import figures
from tests.stage.sizes import SOAK

TESTS = Path(__file__).parent
BUDGETS = {"acceptance": 240.0, "faults": 360.0, "contract": 420.0}
"""Seconds that all tests of a folder may take together; a soak has none."""

# No deadline for one example: a machine that is busy with something else must not fail a test.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "1" else "dev")

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of one test's setup, call or teardown to its folder's."""
    parts = Path(report.nodeid.partition("::")[0]).parts
    _seconds[parts[1] if len(parts) > 2 and parts[0] == TESTS.name else "other"] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the recovery times that were seen, and what each folder took, loudly where it is over its budget."""
    for line in figures.table():
        terminalreporter.write_line(line)
    for folder, seconds in sorted(_seconds.items()):
        budget = None if SOAK else BUDGETS.get(folder)
        limit = "" if budget is None else f" of {budget:.0f} s"
        terminalreporter.write_line(f"{folder}: {seconds:.0f} s{limit}")
        if budget is not None and seconds > budget:
            terminalreporter.write_sep("!", f"{folder} is OVER ITS BUDGET of {budget:.0f} s", red=True, bold=True)
