"""The benchmarks run; what they find out is no matter of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.measures import LONG, SHORT
from tests.benchmarks.peers.contenders import CONTENDERS
from tests.benchmarks.peers.contest import Amounts, run
from tests.benchmarks.redis_measures import MEASURES
from tests.stage.redis_servers import needed_program

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
    "store-add",
    "store-drain",
}


def bench(*arguments: str, module: str = "tests.benchmarks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
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


def test_a_quick_run_on_redis_prints_and_writes_every_figure(tmp_path: Path) -> None:
    needed_program()
    path = tmp_path / "bench.json"
    only = [word for name in MEASURES if name != "peers" for word in ("--only", name)]  # those are not installed here
    ran = bench("--quick", "--json", str(path), *only, module="tests.benchmarks.on_redis")
    assert ran.returncode == 0, ran.stderr
    names = {figure["name"] for figure in json.loads(path.read_text(encoding="utf-8"))["figures"]}
    assert names >= {
        "raw-evalsha", "raw-pipelined", "delay-everysec", "delay-always", "add-many", "crowd", "drain-everysec",
        "drain-always", "drain-async", "kept", "latency-p50", "latency-p99", "team-1",
    }  # fmt: skip


def test_a_quick_curve_is_measured_and_written(tmp_path: Path) -> None:
    ran = bench("--quick", "--only", "depth", "--json", str(tmp_path), module="tests.benchmarks.growth")
    assert ran.returncode == 0, ran.stderr
    written = json.loads((tmp_path / "growth-depth.json").read_text(encoding="utf-8"))
    assert [point["x"] for point in written["points"]] == [100, 1_000]
    assert all(point["adds"] > 0 and point["takes"] > 0 and point["p"] > 0 for point in written["points"])


def test_a_contender_is_measured() -> None:
    [tenure, *_] = CONTENDERS
    found = run(tenure, Path(sys.executable), Amounts(jobs=100, samples=5, idle=0.1, rest=0.1))
    assert all(value > 0 for value in found._replace(percent=1.0))


def test_an_unknown_measurement_is_refused() -> None:
    ran = bench("--only", "nothing")
    assert ran.returncode == 2
    assert "delay-normal" in ran.stderr
