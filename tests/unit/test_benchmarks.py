"""What the benchmarks make of their figures: ratios against a baseline, and their parts of the documentation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.benchmarks.check import BASELINE, verdicts
from tests.benchmarks.growth import CURVES
from tests.benchmarks.measures import SHORT
from tests.benchmarks.pages import PERFORMANCE, README, replaced
from tests.benchmarks.report import Figure


def figure(value: float, ratio: float | None = None, one_core: float | None = None, less: bool = False) -> Any:
    return {"value": value, "ratio": ratio, "one_core": one_core, "less": less}


@pytest.mark.parametrize(
    ("then", "now", "failed"),
    [
        (figure(100, 0.4), figure(10, 0.31), False),
        (figure(100, 0.4), figure(100, 0.29), True),
        (figure(100, 0.4), figure(100, 4.0), False),
        (figure(100, 0.4, 0.5), figure(100, 0.29, 0.45), False),
        (figure(100, 0.4, 0.5), figure(100, 0.29, 0.36), True),
        (figure(2, 90, less=True), figure(9, 110, less=True), False),
        (figure(2, 90, less=True), figure(2, 120, less=True), True),
        (figure(30, less=True), figure(36, less=True), False),
        (figure(30, less=True), figure(40, less=True), True),
        (figure(0, less=True), figure(1, less=True), False),
    ],
)
def test_a_ratio_that_is_more_than_a_quarter_worse_fails(then: Any, now: Any, failed: bool) -> None:
    [verdict] = verdicts({"drain": then}, {"drain": now})
    assert verdict.failed is failed


def test_what_the_machine_can_do_and_what_only_one_run_has_is_not_compared() -> None:
    then, now = figure(100, 1.0), figure(1, 0.1)
    assert verdicts({"p": then, "f": then, "old": then}, {"p": now, "f": now, "new": now}) == []


def test_the_baseline_has_figures_of_measurements_that_there_are() -> None:
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    assert {"p", "drain-normal", "latency-p50"} <= baseline["figures"].keys()
    assert {name for name in SHORT if name.startswith(("delay", "add-many", "drain"))} <= baseline["figures"].keys()


def test_a_part_of_a_page_is_written_anew_and_the_rest_stays() -> None:
    page = "before\n<!-- speed: measured -->\nold\n<!-- speed: end -->\nbehind\n"
    once = replaced(page, "speed", "new\n")
    assert once == page.replace("old", "new")
    assert replaced(once, "speed", "new") == once


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no part 'speed'"):
        replaced("a page", "speed", "new")


@pytest.mark.parametrize("part", ["bench", "bench-long", "backlog", "peers", *(f"growth-{name}" for name in CURVES)])
def test_the_page_on_performance_has_the_part(part: str) -> None:
    page = PERFORMANCE.read_text(encoding="utf-8")
    assert replaced(page, part, "new") != page


def test_the_readme_has_the_table_of_peers() -> None:
    page = README.read_text(encoding="utf-8")
    assert replaced(page, "peers", "new") != page


def test_a_figure_says_whether_what_is_wanted_was_reached() -> None:
    row = Figure("drain", "drain", 1234.5, "/s", ratio=0.3, of="P", one_core=0.4, wanted="0.3 P", met=True, note="fast")
    assert row.cells() == ("drain", "1,234 /s", "0.3 P", "0.400", "0.3 P", "reached, fast")
