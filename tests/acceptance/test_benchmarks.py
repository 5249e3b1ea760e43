"""The benchmarks run; what they find out is no matter of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.benchmarks.measures import LONG, SHORT
from tests.benchmarks.peers.contenders import CONTENDERS
from tests.benchmarks.peers.contest import Amounts, run
from tests.benchmarks.redis_measures import MEASURES
from tests.stage.redis_servers import needed_program

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 50.0
"""Seconds for one measurement of a few of everything, which takes one to five."""

OWN = {
    "limits": "p p-one-core f",
    "delay-normal": "delay-normal delay-kib-normal",
    "add-many-normal": "add-many-normal",
    "crowd": "crowd-normal crowd-full",
    "drain-normal": "drain-normal worker-cpu kept",
    "drain-async": "drain-async",
    "rest": "latency-p50 latency-p99 idle-memory idle-cpu supervisor-memory server-memory",
    "import": "import",
    "backlog": "backlog-fill backlog-add backlog-take backlog-memory backlog-file backlog-restart",
    "scheduled": "scheduled-stall scheduled-late scheduled-memory",
    "parked": "parked-stall parked-wake parked-memory",
    "teams": "team-1",
    "store": "store-add store-drain",
}
"""The figures of each measurement, at one durability: at the other one it is the same code."""
ON_REDIS = {
    "limits": "raw-evalsha raw-pipelined",
    "delay-everysec": "delay-everysec delay-kib-everysec",
    "delay-always": "delay-always delay-kib-always",
    "add-many": "add-many",
    "crowd": "crowd",
    "drain-everysec": "drain-everysec kept worker-cpu",
    "drain-always": "drain-always",
    "drain-async": "drain-async",
    "rest": "latency-p50 latency-p99 idle-memory idle-cpu idle-server-cpu",
    "teams": "team-1",
}
"""The same on Redis, but for the measurement beside a peer, which is not installed here."""
FROM_PROC = {
    "p-one-core",
    "worker-cpu",
    "idle-memory",
    "idle-cpu",
    "idle-server-cpu",
    "supervisor-memory",
    "server-memory",
    "backlog-memory",
    "scheduled-memory",
    "parked-memory",
}


def bench(*arguments: str, module: str = "tests.benchmarks") -> subprocess.CompletedProcess[str]:
    """Run a benchmark to its end; one that does not come to it fails with where each of its processes stood."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # to all that it has started, for nobody else would end those
            pytest.fail(f"{command} was not over in {LIMIT:g} s:\n{process.communicate()[1]}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def figures(module: str, name: str, path: Path) -> set[str]:
    """Make one measurement, look at what it wrote, and return the names of its figures."""
    ran = bench("--quick", "--json", str(path), "--only", name, module=module)
    assert ran.returncode == 0, ran.stderr
    assert str(path) in ran.stdout
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["quick"] is True
    assert {"date", "cpus", "load", "python", "versions"} <= written["machine"].keys()
    for figure in written["figures"]:
        assert figure["value"] >= 0
        assert (figure["wanted"] is None) == (figure["met"] is None)
        assert (figure["ratio"] is None) == (figure["of"] == "")
    names = [figure["name"] for figure in written["figures"]]
    assert len(names) == len(set(names))
    return set(names)


def expected(names: str) -> set[str]:
    return set(names.split()) - (set() if sys.platform == "linux" else FROM_PROC)


@pytest.mark.parametrize("name", OWN)
def test_a_quick_run_prints_and_writes_every_figure(name: str, tmp_path: Path) -> None:
    assert figures("tests.benchmarks", name, tmp_path / "made" / "bench.json") == expected(OWN[name])


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_quick_run_on_redis_prints_and_writes_every_figure(name: str, tmp_path: Path) -> None:
    needed_program()
    assert figures("tests.benchmarks.on_redis", name, tmp_path / "bench.json") == expected(ON_REDIS[name])


def test_every_measurement_is_tried_and_no_two_figures_have_one_name() -> None:
    assert set(OWN) == {name for name in (*SHORT, *LONG) if not name.endswith("-full")}
    assert set(ON_REDIS) == set(MEASURES) - {"peers"}
    for names in (OWN, ON_REDIS):
        all_of_them = list(chain.from_iterable(text.split() for text in names.values()))
        assert len(all_of_them) == len(set(all_of_them))


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
