"""The demo's checks, each with evidence that was spoiled in one place: a check that cannot fail proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from examples.stdlib_report import checks, findings, marks
from examples.stdlib_report.breakage import Killed, kill_in_mid_job
from examples.stdlib_report.checks import Evidence
from examples.stdlib_report.display import print_checks
from examples.stdlib_report.marks import FILE, Mark, Run
from tenure.broker import ProducerCounts
from tenure.faults import process

VICTIM, OTHER = 100, 101
WAYS = {"done": 3, "retried": 0, "released": 0, "left": 0, "returned": 0, "lost": 1, "dead": 0, "cancelled": 0}
TOTALS: dict[str, Any] = {"added": 3, "done": 3, "duplicates": 1, "refused": 0, "handouts": WAYS}
HISTORY = [{"ended": "lost", "cause": "SIGKILL"}, {"ended": "done", "cause": ""}]
COUNTS = {"done": 3, "retried": 0, "released": 0, "dead": 0, "cancelled": 0, "refused": 0, "unknown": 0}
GOOD = Evidence(
    files=3,
    twice=1,
    findings=3,
    record={"totals": TOTALS, "overlaps": 0, "balanced": True},
    verified=True,
    histories={"a": HISTORY},
    producer=ProducerCounts(3, 1, 0),
    worker=COUNTS,
    runs=[
        Run("a", 1, VICTIM, 1.0, None),
        Run("a", 2, OTHER, 2.0, 3.0),
        Run("b", 1, OTHER, 1.0, 1.5),
        Run("c", 1, VICTIM, 0.5, 1.2),
    ],
    cut=5,
    killed=Killed(VICTIM, at=1.5, jobs=1),
)


def with_totals(**changes: Any) -> Evidence:
    return replace(GOOD, record={**GOOD.record, "totals": {**TOTALS, **changes}})


def with_run(*runs: Run) -> Evidence:
    return replace(GOOD, runs=[*GOOD.runs, *runs])


def test_good_evidence_passes_every_check() -> None:
    results = checks.check_all(GOOD)
    assert [result for result in results if not result.holds] == []
    assert len(results) == len(checks.CHECKS)


Check = Callable[[Evidence], checks.Result]

SPOILED: list[tuple[Check, Evidence]] = [
    (checks.everything_was_done, with_totals(done=2)),
    (checks.everything_was_done, with_totals(added=4, done=4)),
    (checks.everything_was_done, replace(GOOD, files=4)),
    (checks.everything_was_done, replace(GOOD, findings=2)),
    (checks.no_overlap_in_the_record, replace(GOOD, record={**GOOD.record, "overlaps": 1})),
    (checks.no_overlap_in_the_record, replace(GOOD, record={**GOOD.record, "balanced": False})),
    (checks.no_overlap_in_the_marks, replace(GOOD, killed=Killed(VICTIM, at=2.1, jobs=1))),
    (checks.no_overlap_in_the_marks, with_run(Run("b", 2, VICTIM, 1.4, 1.45))),
    (checks.no_overlap_in_the_marks, with_run(Run("a", 3, OTHER, 2.9, 3.5))),
    (checks.every_run_is_explained, replace(GOOD, runs=GOOD.runs[1:])),
    (checks.every_run_is_explained, with_run(Run("d", 1, OTHER, 1.0, None))),
    (checks.every_run_is_explained, replace(GOOD, runs=GOOD.runs[:-1])),
    (checks.the_record_shows_the_loss, with_totals(handouts={**WAYS, "lost": 0})),
    (checks.running_twice_has_a_reason, replace(GOOD, histories={"a": [{"ended": "done", "cause": ""}, HISTORY[1]]})),
    (checks.running_twice_has_a_reason, replace(GOOD, histories={})),
    (checks.running_twice_has_a_reason, replace(GOOD, runs=GOOD.runs[1:])),
    (checks.producer_agrees, replace(GOOD, producer=ProducerCounts(4, 1, 0))),
    (checks.producer_agrees, replace(GOOD, producer=ProducerCounts(3, 1, 1))),
    (checks.producer_agrees, replace(GOOD, twice=2)),
    (checks.producer_agrees, with_totals(duplicates=0)),
    (checks.worker_agrees, replace(GOOD, worker={**COUNTS, "done": 4})),
    (checks.worker_agrees, replace(GOOD, worker={**COUNTS, "unknown": 1})),
    (checks.worker_agrees, replace(GOOD, worker={})),
    (checks.worker_agrees, with_totals(refused=1)),
    (checks.recount_agrees, replace(GOOD, verified=False)),
    (checks.connections_were_cut, replace(GOOD, cut=0)),
]


@pytest.mark.parametrize(("check", "spoiled"), SPOILED)
def test_spoiled_evidence_fails_its_check(check: Check, spoiled: Evidence) -> None:
    assert not check(spoiled).holds
    assert sum(not result.holds for result in checks.check_all(spoiled)) >= 1


def test_every_check_has_been_seen_to_fail() -> None:
    assert {check for check, _ in SPOILED} == set(checks.CHECKS)


def test_what_failed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    print_checks(checks.check_all(with_totals(done=2)))
    out = capsys.readouterr().out
    assert "FAILED  added = done: 3 files, 3 jobs added, 2 done" in out
    assert "The demo FAILED: added = done" in out


def test_marks_are_read_back_as_runs(tmp_path: Path) -> None:
    assert marks.read(tmp_path) == []
    with marks.marked(tmp_path, "a", 1):
        (unfinished,) = marks.runs(marks.read(tmp_path))
    (run,) = marks.runs(marks.read(tmp_path))
    assert (unfinished.job, unfinished.fence, unfinished.pid, unfinished.end) == ("a", 1, os.getpid(), None)
    assert run.end is not None
    assert run.start <= run.end


def test_a_mark_that_is_just_being_written_is_left_for_later(tmp_path: Path) -> None:
    with marks.marked(tmp_path, "a", 1):
        pass
    with (tmp_path / marks.FILE).open("ab") as file:
        file.write(b'{"what": "sta')
    assert len(marks.read(tmp_path)) == 2


def test_a_source_file_is_measured(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(
        "class A:\n    def f(self):\n        return 1\n\nasync def g():\n    x = 1\n    y = 2\n    return x\n"
    )
    assert findings.measured(source) == findings.Finding(str(source), 8, 2, 1, "g", 4)


def test_what_is_no_python_has_its_lines_counted(tmp_path: Path) -> None:
    source = tmp_path / "two.py"
    source.write_bytes(b"print 'old'\n\xff\n")
    assert findings.measured(source) == findings.Finding(str(source), 2, 0, 0, "", 0)


def test_an_older_hand_out_does_not_overwrite_a_later_one(tmp_path: Path) -> None:
    findings.prepare(tmp_path)
    later, older = findings.Finding("x.py", 2, 0, 0, "", 0), findings.Finding("x.py", 1, 0, 0, "", 0)
    findings.save(tmp_path, later, fence=2)
    findings.save(tmp_path, older, fence=1)
    assert findings.load(tmp_path) == [later]


@pytest.mark.skipif(sys.platform != "linux", reason="freezes processes")
def test_one_process_is_killed_also_where_its_number_is_nobodys_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor may have reaped it before anything else can be done to it."""
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    try:
        lines = [Mark("start", f"job{sleeper.pid}", 1, sleeper.pid, 0.0) for sleeper in sleepers]
        (tmp_path / FILE).write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))

        def kill_and_reap(pid: int) -> None:
            kill(pid)
            next(sleeper for sleeper in sleepers if sleeper.pid == pid).wait()

        kill = process.kill
        monkeypatch.setattr(process, "kill", kill_and_reap)
        killed = kill_in_mid_job(tmp_path)
        assert killed is not None
        assert killed.jobs == 1
        assert [sleeper.pid for sleeper in sleepers if sleeper.poll() is not None] == [killed.pid]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
