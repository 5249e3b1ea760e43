"""On which machine something was measured, and when."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw

BUSY = 0.1
"""The part of all CPUs above which the machine did something else too, so that figures are marked."""
LOOK = 0.5
"""Seconds for which the CPUs are looked at; the load average still has the run before this one in it."""


@dataclass(frozen=True)
class Machine:
    """Where and when it was measured.

    `load` is the average number of busy processes over the last minute, `busy` the part of all CPUs that others used
    right before; None where the system does not tell.
    """

    date: str
    system: str
    processor: str
    cpus: int
    load: float | None
    busy: float | None
    python: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Return it for people."""
        load = "unknown" if self.load is None else f"{self.load:.2f}"
        if self.busy is not None:
            mark = ": BUSY with something else, the figures are too low" if self.busy > BUSY else ""
            load += f", CPUs in use by others {self.busy:.0%}{mark}"
        return [
            f"{self.date}, {self.system}, {self.processor}, {self.cpus} CPUs, load average before {load}",
            ", ".join([self.python, *(f"{name} {number}" for name, number in self.versions.items())]),
        ]


def this_machine() -> Machine:
    """Describe the machine as it is now."""
    return Machine(
        date=datetime.now(UTC).isoformat(" ", "seconds"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cpus=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 0,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        busy=_busy(LOOK),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={**_versions("tenure", "uvloop", "msgpack", "apsw"), "SQLite": apsw.sqlite_lib_version()},
    )


def _busy(seconds: float) -> float | None:
    """Return the part of all CPUs that was in use for so long; this process only waits meanwhile."""
    if sys.platform != "linux":
        return None
    idle, total = _ticks()
    time.sleep(seconds)
    later_idle, later_total = _ticks()
    return 1 - (later_idle - idle) / (later_total - total)


def _ticks() -> tuple[int, int]:
    """Return how many ticks all CPUs have been idle, or waited for a disk, and how many there were."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
