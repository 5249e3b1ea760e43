"""`tenure chaos` as a process: between a client and a server, told what to do by options and by lines."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.stage.apps import jobs
from tests.stage.harness import TENURE, Stage


class Talking:
    """The command with its input and output at hand."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self._popen = popen
        self.url = self.line("tenure chaos on ").split(",")[0].split()[3]

    def line(self, says: str) -> str:
        """Return the next line, in which `says` has to be."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert says in line
        return line

    def type(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n")
        self._popen.stdin.flush()

    def end(self, *numbers: int) -> tuple[int, str]:
        """Send signals; returns the exit code and what was written until then."""
        for number in numbers:
            self._popen.send_signal(number)
        out, err = self._popen.communicate(timeout=10)
        return self._popen.returncode, out + err


@contextmanager
def chaos(*args: str) -> Iterator[Talking]:
    command = [str(TENURE), "chaos", "--listen", "127.0.0.1:0", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as popen:
        try:
            yield Talking(popen)
        finally:
            popen.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_jobs_pass_and_verbs_are_obeyed_until_the_end(stage: Stage, number: int) -> None:
    with chaos("--to", stage.url, "--do", "cut-on-accept 2") as between:
        between.line("cut-on-accept 2")
        stage.use(jobs.app, between.url)
        jobs.work.delay(1)
        between.type("status")
        between.line("connections: 1,")
        between.type("drop")
        between.line("drop")
        jobs.work.delay(2)
        between.type("status")
        between.line("answers swallowed: 1")
        code, rest = between.end(number)
    assert (code, rest) == (0, "tenure chaos has ended; its connections are reset\n")
    assert stage.check(jobs.app.counts)["totals"]["added"] == 2


def test_the_same_seed_brings_the_same_weather() -> None:
    seen = []
    for _ in range(2):
        with chaos("--to", "127.0.0.1:1", "--seed", "7", "--seconds", "0.5s") as between:
            said: list[str] = []
            while not said or said[-1] != "pass":
                said.append(between.line("").split(maxsplit=1)[1].rstrip())
            seen.append(said)
            assert between.end(signal.SIGTERM)[0] == 0
    assert seen[0] == seen[1]
    assert len(seen[0]) >= 2


def test_a_fault_comes_again_and_again_and_nonsense_is_answered() -> None:
    with chaos("--to", "127.0.0.1:1", "--every", "0.05", "cut") as between:
        between.type("\x00\x80\x1b")
        for _ in range(3):
            between.line("  cut")
        code, rest = between.end(signal.SIGINT, signal.SIGTERM)
    assert code == 0
    assert "is no verb; there are pass, cut," in rest
    assert "Traceback" not in rest
