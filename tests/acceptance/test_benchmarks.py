"""The benchmarks run; what they find out is no matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ON_EVERY_SYSTEM = {
    "p",
    "delay-normal",
    "add-many-normal",
    "drain-normal",
    "latency-p50",
    "latency-p99",
    "kept",
    "delay-full",
    "add-many-full",
    "drain-full",
}
FROM_PROC = {"idle-memory", "idle-cpu", "supervisor-memory"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)


def test_a_quick_run_prints_and_writes_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "made" / "bench.json"
    ran = bench("--quick", "--json", str(path))
    assert ran.returncode == 0, ran.stderr
    assert str(path) in ran.stdout
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["quick"] is True
    assert {"date", "cpus", "load", "python", "versions"} <= written["machine"].keys()
    names = [figure["name"] for figure in written["figures"]]
    assert len(names) == len(set(names))
    assert set(names) == ON_EVERY_SYSTEM | (FROM_PROC if sys.platform == "linux" else set())
    for figure in written["figures"]:
        assert figure["value"] >= 0
        assert figure["label"] in ran.stdout
        assert (figure["wanted"] is None) == (figure["met"] is None)


def test_one_measurement_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    ran = bench("--quick", "--only", "p", "--json", str(path))
    assert ran.returncode == 0, ran.stderr
    [figure] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    assert (figure["name"], figure["ratio"]) == ("p", 1.0)


def test_an_unknown_measurement_is_refused() -> None:
    ran = bench("--only", "nothing")
    assert ran.returncode == 2
    assert "delay-normal" in ran.stderr
