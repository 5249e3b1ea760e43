"""What is forked in a process with handlers of its own ends at SIGTERM, however early it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, threading, time
{before}
from tenure.worker.commands import Commands

def fork_and_end():
    for _ in range(int(sys.argv[1])):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(9)
        os.kill(pid, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
    print("all ended", flush=True)

commands = Commands()
with commands.from_signals({{signal.SIGTERM: "drain"}}):
    thread = threading.Thread(target=fork_and_end, daemon=True)
    thread.start()
    thread.join()
    assert commands.get(0.0) is None, "and none of it has told this process to leave"
    os.kill(os.getpid(), signal.SIGTERM)
    assert commands.get(5.0) == "drain", "which still listens itself"
{after}
"""

SLOW = "os.register_at_fork(after_in_child=lambda: time.sleep(0.05))"
"""It comes before ours, so that the signal arrives while the fork has our handler."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run(count: int, before: str = "", after: str = "") -> str:
    script = SCRIPT.format(before=before, after=after)
    words = [sys.executable, "-W", "error", "-c", script, str(count)]
    return subprocess.run(words, capture_output=True, text=True, timeout=50, check=True).stdout


def test_a_fork_ends_at_a_signal_that_comes_at_once() -> None:
    assert run(300) == "all ended\n"


def test_a_fork_ends_at_a_signal_that_comes_before_its_handlers_are_set() -> None:
    assert run(5, SLOW) == "all ended\n"


def test_a_handler_that_is_not_the_workers_is_left_alone() -> None:
    after = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
pid = os.fork()
if pid == 0:
    time.sleep(60)
os.kill(pid, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(1, after=after) == "all ended\n7\n"


def test_a_mask_that_was_there_before_the_fork_is_there_after_it() -> None:
    before = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})"
    after = "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2})"
    assert run(1, before, after) == "all ended\nTrue\n"
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
