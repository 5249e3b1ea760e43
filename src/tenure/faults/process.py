"""Verbs that break processes: kill, freeze, thaw, and who belongs to whom.

`children` and `state` read `/proc`, so they work on Linux only; elsewhere they raise OSError.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

PROC = Path("/proc")


def kill(pid: int) -> None:
    """End the process at once with SIGKILL, which it cannot catch; raises ProcessLookupError when there is none."""
    os.kill(pid, signal.SIGKILL)


def freeze(pid: int) -> None:
    """Stop the process with SIGSTOP, as a pause of its machine would; `state` answers "T" once it stands still."""
    os.kill(pid, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Let a frozen process run on (SIGCONT)."""
    os.kill(pid, signal.SIGCONT)


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
