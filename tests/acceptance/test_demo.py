"""The demo as anyone runs it: what it prints, how it ends, and that it leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.stdlib_report.checks import CHECKS
from tenure.faults import process

ROOT = Path(__file__).parents[2]
MARK = "TENURE_TEST_DEMO"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")


def start(mark: str, folder: Path) -> subprocess.Popen[str]:
    """Start the demo so that all its processes carry `mark` and make their files below `folder`."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.stdlib_report.demo"],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until_jobs_are_added(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    while not (line := demo.stdout.readline()).startswith("added "):
        assert line, "the demo ended before it added jobs"


def left(mark: str) -> list[int]:
    """Return the processes that were started under a demo with this mark and still live."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _carries(pid, mark)]  # noqa: PTH208


def _carries(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def wait_until_none_is_left(mark: str) -> None:
    give_up = time.monotonic() + 5
    while left(mark) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert left(mark) == []


@pytest.fixture
def mark() -> Iterator[str]:
    name = os.urandom(8).hex()
    yield name
    for pid in left(name):
        process.kill(pid)


def test_the_demo_holds_all_it_claims_and_leaves_nothing_behind(mark: str, tmp_path: Path) -> None:
    demo = start(mark, tmp_path)
    out, _ = demo.communicate()
    assert demo.returncode == 0, out
    assert re.search(r"cut all (\d+) connections", out)
    assert re.search(r"killed worker process \d+ \(SIGKILL\) in the middle of", out)
    assert "The 10 largest of" in out
    assert "The longest function: " in out
    assert "verified: a recount of all rows agrees" in out
    assert len(re.findall(r"^ok      ", out, re.MULTILINE)) == len(CHECKS)
    assert f"All {len(CHECKS)} checks hold." in out
    assert "FAILED" not in out
    assert len(re.findall(r"^added \d+ of \d+, done \d+$", out, re.MULTILINE)) >= 4  # lines, where there is no terminal
    assert "\x1b" not in out
    wait_until_none_is_left(mark)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_it_leaves_nothing_behind(number: int, mark: str, tmp_path: Path) -> None:
    demo = start(mark, tmp_path)
    read_until_jobs_are_added(demo)
    assert len(left(mark)) >= 3
    demo.send_signal(number)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, rest
    assert "Interrupted" in rest
    assert "Traceback" not in rest
    wait_until_none_is_left(mark)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("victim", ["server", "worker"])
def test_when_a_process_dies_the_demo_says_so_and_fails(victim: str, mark: str, tmp_path: Path) -> None:
    demo = start(mark, tmp_path)
    read_until_jobs_are_added(demo)
    (pid,) = [pid for pid in process.children(demo.pid) if _runs(pid, victim)]
    process.kill(pid)
    rest, _ = demo.communicate()
    assert demo.returncode == 1, rest
    assert "The demo could not be finished" in rest
    assert "Traceback" not in rest
    wait_until_none_is_left(mark)
    assert list(tmp_path.iterdir()) == []


def _runs(pid: int, command: str) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[1:4] == [b"-m", b"tenure", command.encode()]
