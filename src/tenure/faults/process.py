"""Verbs that break processes: kill, freeze, thaw, kill a whole tree, restart, and who belongs to whom.

All but `kill`, `freeze` and `thaw` read `/proc`, so they work on Linux only; elsewhere they raise OSError.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PATIENCE = 10.0
"""Seconds in which a signal that cannot be caught has to take effect."""


def kill(pid: int) -> None:
    """End the process at once with SIGKILL, which it cannot catch; raises ProcessLookupError when there is none."""
    os.kill(pid, signal.SIGKILL)


def freeze(pid: int) -> None:
    """Stop the process with SIGSTOP, as a pause of its machine would; `state` answers "T" once it stands still."""
    os.kill(pid, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Let a frozen process run on (SIGCONT)."""
    os.kill(pid, signal.SIGCONT)


def kill_tree(pid: int) -> list[int]:
    """End the process and all that descend from it with SIGKILL; returns their ids, parents first.

    All are frozen before the first is killed, so that none can start another that escapes, or mourn its children.
    """
    found: list[int] = []
    new = [pid]
    while new:
        for one in new:
            _freeze_fully(one)
        found += new
        new = [child for one in found for child in children(one) if child not in found]
    for one in found:
        with suppress(ProcessLookupError):
            kill(one)
    return found


def restart(pid: int, output: int | None = None) -> subprocess.Popen[bytes]:
    """Kill the process and run its command again, in the same folder and environment; returns the new process.

    Its input is empty, and its output goes to `output`, a file descriptor (None: where this process's own goes).
    A server has to have been started on a port that it chose, since with port 0 the new one listens elsewhere.
    """
    place = PROC / str(pid)
    args = _words(place / "cmdline")
    env = dict(word.split("=", 1) for word in _words(place / "environ") if "=" in word)
    folder = os.readlink(place / "cwd")  # noqa: PTH115  (as the kernel spells it)
    kill(pid)
    wait_gone(pid)
    return subprocess.Popen(  # noqa: S603  the command ran before
        args, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def wait_gone(pid: int, seconds: float = PATIENCE) -> None:
    """Return as soon as the process has ended, collected or not; raises TimeoutError after `seconds`."""
    _wait_for(pid, (None, "Z", "X"), seconds)


def state(pid: int) -> str | None:
    """Return the kernel's letter for what the process does (R, S, D, T stopped, Z zombie), None when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else None


def children(pid: int) -> list[int]:
    """Return the process ids of the direct children, lowest first; empty when there are none or `pid` is gone."""
    found = []
    for entry in os.listdir(PROC):  # noqa: PTH208  one name a process: plain strings do
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields and int(fields[1]) == pid:
            found.append(int(entry))
    return sorted(found)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/PID/stat` from the state on; None when the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before the state is in parentheses and may hold blanks and parentheses itself.
    return text.rpartition(")")[2].split()


def _freeze_fully(pid: int) -> None:
    """Freeze a process and wait until it stands still; one that is gone does."""
    with suppress(ProcessLookupError):
        freeze(pid)
        _wait_for(pid, (None, "T", "t", "Z", "X"), PATIENCE)


def _wait_for(pid: int, states: tuple[str | None, ...], seconds: float) -> None:
    end = time.monotonic() + seconds
    while (now := state(pid)) not in states:
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} is still in state {now} after {seconds:g} s")
        time.sleep(0.002)


def _words(file: Path) -> list[str]:
    return [os.fsdecode(word) for word in file.read_bytes().split(b"\0")[:-1]]
