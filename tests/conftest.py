"""What all tests share: hypothesis profiles, recovery times, and the time of each folder against its budget."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.stage import figures
from tests.stage.redis_servers import MISSING, redis_cluster, redis_server, redis_watched
from tests.stage.sizes import SOAK

__all__ = ["redis_cluster", "redis_server", "redis_watched"]

TESTS = Path(__file__).parent
BUDGETS = {"acceptance": 240.0, "faults": 360.0, "contract": 420.0}
"""Seconds from the first to the last test of a folder; a soak has none."""

# No deadline for one example: a machine that is busy with something else must not fail a test.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("soak" if SOAK else "ci" if os.environ.get("CI") == "1" else "dev")

_spans: dict[str, tuple[float, float]] = {}
_figures: list[figures.Figure] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send the recovery times that a test saw along with its report: it may run in another process."""
    report = yield
    report.user_properties += [("recovered", (one.what, one.seconds, one.promised)) for one in figures.take()]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note when the tests of each folder ran, and the recovery times."""
    parts = Path(report.nodeid.partition("::")[0]).parts
    folder = parts[1] if len(parts) > 2 and parts[0] == TESTS.name else "other"
    first, last = _spans.get(folder, (report.start, report.stop))
    _spans[folder] = min(first, report.start), max(last, report.stop)
    _figures.extend(figures.Figure(*one) for _, one in report.user_properties if isinstance(one, tuple))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the recovery times that were seen, and what each folder took, loudly where it is over its budget."""
    for line in figures.table(_figures):
        terminalreporter.write_line(line)
    missing = [one for one in terminalreporter.stats.get("skipped", ()) if MISSING in str(one.longrepr)]
    if missing:
        what = sorted({str(one.longrepr[2]).removeprefix("Skipped: ") for one in missing})
        terminalreporter.write_sep("!", f"{len(missing)} tests SKIPPED: {', '.join(what)}", red=True, bold=True)
    for folder, (first, last) in sorted(_spans.items()):
        budget = None if SOAK else BUDGETS.get(folder)
        limit = "" if budget is None else f" of {budget:.0f} s"
        terminalreporter.write_line(f"{folder}: {last - first:.0f} s{limit}")
        if budget is not None and last - first > budget:
            terminalreporter.write_sep("!", f"{folder} is OVER ITS BUDGET of {budget:.0f} s", red=True, bold=True)
