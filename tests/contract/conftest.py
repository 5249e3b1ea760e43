"""Keeps what came of a run of the contract, where `TENURE_CONTRACT_RUN` names the file for it (`make contract`)."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docs.make_brokers import COLUMNS

RUN = os.environ.get("TENURE_CONTRACT_RUN", "")
SEEN = "contract"
"""Under what name a report says which broker and part it is about."""

_brokers: dict[str, Any] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send along with a report which broker and part it is about: it may be made in another process."""
    report = yield
    part = getattr(getattr(item, "function", None), "contract_part", None)
    name = item.path.stem.removeprefix("test_")
    if RUN and part is not None and name in COLUMNS and (call.when == "call" or report.failed):
        given: dict[str, Any] = getattr(item, "funcargs", {})
        scene = given.get("rough", given.get("scene"))
        flags = {} if scene is None else dataclasses.asdict(scene.can)
        denied = "" if scene is None else scene.denied
        seen = {"broker": name, "part": part.__name__, "flags": flags, "denied": denied}
        report.user_properties.append((SEEN, seen))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count it."""
    for name, seen in report.user_properties:
        if name == SEEN and isinstance(seen, dict):
            broker = _brokers.setdefault(seen["broker"], {"flags": {}, "parts": {}})
            broker["flags"] = seen["flags"] or broker["flags"]
            counts = broker["parts"].setdefault(seen["part"], {"held": 0, "broken": 0, "denied": {}})
            if report.passed and seen["denied"]:
                counts["denied"][seen["denied"]] = counts["denied"].get(seen["denied"], 0) + 1
            else:
                counts["held" if report.passed else "broken"] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write it down, beside what earlier runs have seen of other brokers."""
    if not _brokers or not RUN:
        return
    path = Path(RUN)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for name, seen in _brokers.items():
        parts = dict(sorted(seen["parts"].items()))
        kept[name] = {"date": today, "flags": seen["flags"], "parts": parts}
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n", encoding="utf-8")
    terminalreporter.write_line(f"what came of it is in {path}; `make reference` puts it on its page")
