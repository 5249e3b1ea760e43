"""The benchmarks run; what they find out is no matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.measures import LONG, SHORT

ROOT = Path(__file__).resolve().parents[2]

ONCE = [name for name in (*SHORT, *LONG) if not name.endswith("-full")]
"""Each measurement at one durability: at the other one it is the same code."""
FROM_PROC = {
    "p-one-core",
    "worker-cpu",
    "idle-memory",
    "idle-cpu",
    "supervisor-memory",
    "server-memory",
    "backlog-memory",
    "scheduled-memory",
    "parked-memory",
}
ON_EVERY_SYSTEM = {
    "p",
    "f",
    "delay-normal",
    "delay-kib-normal",
    "add-many-normal",
    "crowd-normal",
    "crowd-full",
    "drain-normal",
    "kept",
    "drain-async",
    "latency-p50",
    "latency-p99",
    "import",
    "backlog-fill",
    "backlog-add",
    "backlog-take",
    "backlog-file",
    "backlog-restart",
    "scheduled-stall",
    "scheduled-late",
    "parked-stall",
    "parked-wake",
    "team-1",
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)


def test_a_quick_run_prints_and_writes_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "made" / "bench.json"
    ran = bench("--quick", "--json", str(path), *(word for name in ONCE for word in ("--only", name)))
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
        assert (figure["wanted"] is None) == (figure["met"] is None)
        assert (figure["ratio"] is None) == (figure["of"] == "")


def test_an_unknown_measurement_is_refused() -> None:
    ran = bench("--only", "nothing")
    assert ran.returncode == 2
    assert "delay-normal" in ran.stderr
