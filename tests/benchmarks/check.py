"""`make bench-check`: measure, and fail where a ratio has become more than a quarter worse than the stored one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.__main__ import measured
from tests.benchmarks.machine import this_machine
from tests.benchmarks.measures import SHORT
from tests.benchmarks.stage import Sizes

BASELINE = Path(__file__).with_name("baseline.json")
WORSE = 0.25
LIMITS = ("p", "p-one-core", "f")
"""What the machine can do is no matter of ours."""

Figures = Mapping[str, Mapping[str, Any]]


class Verdict(NamedTuple):
    """A figure's ratio in the baseline and now, and by which part it is worse (below zero: it is better)."""

    name: str
    then: float
    now: float
    worse: float

    @property
    def failed(self) -> bool:
        """Whether it is past what is let pass."""
        return self.worse > WORSE


def verdicts(then: Figures, now: Figures) -> list[Verdict]:
    """Compare what both have; the ratio to P on one core counts where it is the better one, since P jumps."""
    return [_verdict(name, then[name], now[name]) for name in then if name in now and name not in LIMITS]


def _verdict(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Verdict:
    found = [
        Verdict(name, then[key], now[key], _worse(then[key], now[key], now["less"]))
        for key in ("ratio", "one_core")
        if then[key] is not None and now[key] is not None
    ]
    # A size has no ratio: it is the same on each machine.
    value = Verdict(name, then["value"], now["value"], _worse(then["value"], now["value"], now["less"]))
    return min(found, key=lambda verdict: verdict.worse, default=value)


def _worse(then: float, now: float, less: bool) -> float:
    """Return by which part a figure is worse: 0.25 is a rate that is at three quarters, or a size at five."""
    if then == 0:
        return 0.0
    return now / then - 1 if less else 1 - now / then


def main(arguments: Sequence[str]) -> int:
    """Compare, or store; returns the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.json is None:
        machine = this_machine()
        figures, failed = measured([*SHORT], Sizes())
        content = {"machine": asdict(machine), "figures": [asdict(figure) for figure in figures]}
        if failed:
            return 1
    else:
        content = json.loads(asked.json.read_text(encoding="utf-8"))
    if asked.store:
        BASELINE.write_text(json.dumps(_stored(content), indent=2) + "\n", encoding="utf-8")
        print(f"stored in {BASELINE}")
        return 0
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    print(f"baseline: {baseline['machine']['date']}, load average before {baseline['machine']['load']}")
    found = verdicts(baseline["figures"], _by_name(content))
    for verdict in found:
        word = "WORSE" if verdict.failed else "ok"
        print(f"{verdict.name:20} {verdict.then:10.4g} -> {verdict.now:10.4g} {-100 * verdict.worse:+6.0f} %  {word}")
    failed = [verdict.name for verdict in found if verdict.failed]
    print(f"more than {WORSE:.0%} worse: {', '.join(failed)}" if failed else f"none is more than {WORSE:.0%} worse")
    return 1 if failed else 0


def _by_name(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {figure["name"]: figure for figure in content["figures"]}


def _stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the baseline keeps of a run."""
    keys = ("value", "ratio", "one_core", "unit", "of")
    kept = {name: {key: figure[key] for key in keys} for name, figure in _by_name(content).items()}
    return {"machine": content["machine"], "figures": kept}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.check", description=__doc__)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    parser.add_argument("--json", type=Path, metavar="PATH", help="take the figures that `make bench` wrote there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
