"""On which machine something was measured, and when."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw

BUSY = 0.7
"""A load average above which the machine did something else too, so that figures are marked."""


@dataclass(frozen=True)
class Machine:
    """Where and when it was measured; `load` is the average number of busy processes over the last minute."""

    date: str
    system: str
    processor: str
    cpus: int
    load: float | None
    python: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Return it for people."""
        load = "unknown" if self.load is None else f"{self.load:.2f}"
        busy = " (BUSY with something else: the figures are too low)" if (self.load or 0) > BUSY else ""
        return [
            f"{self.date}, {self.system}, {self.processor}, {self.cpus} CPUs, load average before {load}{busy}",
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
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={**_versions("tenure", "uvloop", "msgpack", "apsw"), "SQLite": apsw.sqlite_lib_version()},
    )


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
