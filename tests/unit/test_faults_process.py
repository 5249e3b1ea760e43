"""The verbs for processes, and their clocks, on real ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenure.faults import process
from tenure.faults.clock import MovedClock

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print("up", flush=True)
input()
"""
CHILD = "input()"
BREEDER = """
import subprocess, sys, time
while True:
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    print("up", flush=True)
"""


@dataclass
class Talking:
    """A Python process that says a line whenever it is asked one."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().decode().rstrip("\n")

    def ask(self, text: str = "") -> str:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{text}\n".encode())
        self.popen.stdin.flush()
        return self.line()


class Starts:
    """Starts Python processes, and ends them with all that they started."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __call__(self, code: str, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Talking:
        popen = self._stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd
            )
        )
        self._stack.callback(self._end, popen)
        return Talking(popen)

    def _end(self, popen: subprocess.Popen[bytes]) -> None:
        if popen.poll() is None:
            process.kill_tree(popen.pid)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def start() -> Iterator[Starts]:
    starts = Starts()
    yield starts
    starts.close()


def test_kill_freeze_and_thaw(start: Starts) -> None:
    child = start("print('up', flush=True); input()")
    assert child.line() == "up"
    assert child.pid in process.children(os.getpid())
    process.freeze(child.pid)
    process._wait_for(child.pid, ("T",), 10)
    process.thaw(child.pid)
    process._wait_for(child.pid, ("S", "R"), 10)
    process.kill(child.pid)
    process.wait_gone(child.pid)
    assert child.popen.wait(10) == -9
    assert process.state(child.pid) is None
    assert process.children(child.pid) == []
    with pytest.raises(ProcessLookupError):
        process.kill(child.pid)


def test_a_tree_is_killed_whole(start: Starts) -> None:
    parent = start(PARENT, PARENT.replace("sys.argv[1]", repr(CHILD)))
    assert [parent.line(), parent.line()] == ["up", "up"]
    (child,) = process.children(parent.pid)
    (grandchild,) = process.children(child)
    assert process.kill_tree(parent.pid) == [parent.pid, child, grandchild]
    assert parent.popen.wait(10) == -9
    process.wait_gone(child)
    process.wait_gone(grandchild)


def test_none_escapes_from_a_tree_that_grows(start: Starts) -> None:
    breeder = start(BREEDER)
    assert breeder.line() == "up"
    killed = process.kill_tree(breeder.pid)
    assert len(killed) >= 2
    for pid in killed:
        process.wait_gone(pid)
    assert breeder.popen.wait(10) == -9
    # The pipe ends when nobody holds its other end any more: a process that escaped would keep it for a minute.
    assert breeder.popen.stdout is not None
    breeder.popen.stdout.read()


def test_a_tree_that_is_gone_is_no_error(start: Starts) -> None:
    child = start("")
    assert child.popen.wait(10) == 0
    assert process.kill_tree(child.pid) == [child.pid]


def test_who_waits_for_the_end_of_what_runs_on_is_told(start: Starts) -> None:
    child = start("input()")
    with pytest.raises(TimeoutError, match=f"process {child.pid} is still in state"):
        process.wait_gone(child.pid, 0.05)


def test_restart_runs_the_same_command_again(start: Starts, tmp_path: Path) -> None:
    code = "import os, sys, time; print(sys.argv[1], os.environ['A'], os.getcwd(), flush=True); time.sleep(60)"
    first = start(code, "a word with = and 'quotes'", env={**os.environ, "A": "b=c d"}, cwd=tmp_path)
    said = first.line()
    assert said == f"a word with = and 'quotes' b=c d {tmp_path}"
    reading, writing = os.pipe()
    with open(reading) as output:  # noqa: PTH123  (a pipe has no path)
        again = process.restart(first.pid, writing)
        os.close(writing)
        with again:
            assert output.readline() == f"{said}\n"
            assert again.pid != first.pid
            assert first.popen.wait(10) == -9
            process.kill(again.pid)


CLOCKS = """
import time
from time import time as bound
while True:
    input()
    gone = time.clock_gettime(time.CLOCK_REALTIME), time.mktime(time.localtime()), bound(), time.time_ns() / 1e9
    print(*gone, time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e9, time.monotonic(), flush=True)
"""


def _ahead(child: Talking) -> list[float]:
    """Ask a process for its clocks; returns by how many seconds its wall clocks are ahead of ours, to the whole one."""
    before = time.time()
    *walls, fine, monotonic = map(float, child.ask().split())
    assert abs(time.monotonic() - monotonic) < 1
    assert abs(time.monotonic() - fine) < 1
    return [round(wall - before, -1) for wall in walls]


def test_a_wall_clock_is_moved_at_the_start_and_while_it_runs(start: Starts) -> None:
    with MovedClock(-120) as clock:
        child = start(CLOCKS, env=clock.env())
        assert _ahead(child) == [-120] * 4
        clock.move(3600)
        assert _ahead(child) == [3600] * 4
        clock.move(0)
        assert _ahead(child) == [0] * 4
        clock.move(120)
    assert _ahead(child) == [120] * 4


def test_a_process_with_a_moved_clock_writes_a_log_with_the_moved_time(start: Starts) -> None:
    code = "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(asctime)s'); logging.error('')"
    with MovedClock(9e9) as clock:
        assert start(code, env=clock.env()).line() > "2300-01-01"


def test_a_moved_clock_keeps_what_is_on_the_path_and_what_customizes_python(start: Starts, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['CUSTOMIZED'] = 'yes'")
    (tmp_path / "its_own.py").write_text("word = 'found'")
    code = "import os, its_own, time; print(os.environ['CUSTOMIZED'], its_own.word, time.time() > 9e9, flush=True)"
    with MovedClock(9e9) as clock:
        child = start(code, env=clock.env({**os.environ, "PYTHONPATH": str(tmp_path)}))
        assert child.line() == "yes found True"


def test_a_moved_clock_leaves_nothing_behind() -> None:
    with MovedClock(5) as clock:
        env = clock.env({})
        folder = Path(env["PYTHONPATH"])
        assert (folder / "sitecustomize.py").exists()
    assert not folder.exists()
