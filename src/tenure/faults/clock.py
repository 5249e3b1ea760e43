"""A wall clock that is wrong: for processes that are started with it, and while they run too."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

OFFSET = struct.Struct("=q")
VARIABLE = "TENURE_FAULTS_CLOCK"
"""The environment variable that names the file with the offset, nanoseconds."""

SITECUSTOMIZE = '''"""Moves the wall clock of this process by what a file says, while it runs too."""

import importlib.machinery
import mmap
import os
import struct
import sys
import time

with open(os.environ["TENURE_FAULTS_CLOCK"], "rb") as file:
    offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
read = struct.Struct("=q").unpack_from
real_ns, real_gettime_ns = time.time_ns, time.clock_gettime_ns
real_gmtime, real_localtime, real_ctime = time.gmtime, time.localtime, time.ctime


def time_ns():
    return real_ns() + read(offset)[0]


def now():
    return time_ns() / 1e9


def clock_gettime_ns(clock):
    return real_gettime_ns(clock) + (read(offset)[0] if clock == time.CLOCK_REALTIME else 0)


class Defaulting:
    # An object and no function, which would become a method where it is a class's attribute, as in logging.Formatter.
    def __init__(self, real):
        self.real = real

    def __call__(self, seconds=None):
        return self.real(now() if seconds is None else seconds)


time.time, time.time_ns = now, time_ns
time.clock_gettime_ns = clock_gettime_ns
time.clock_gettime = lambda clock: clock_gettime_ns(clock) / 1e9
time.gmtime, time.localtime, time.ctime = map(Defaulting, (real_gmtime, real_localtime, real_ctime))

# Python imports one module of this name only: the one that this hides has its turn now.
here = os.path.dirname(os.path.abspath(__file__))
others = [place for place in sys.path if os.path.abspath(place) != here]
hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if hidden is not None and hidden.loader is not None:
    hidden.loader.exec_module(sys.modules[__name__])
'''


class MovedClock:
    """The wall clock of other Python processes, moved by some seconds; ends with `close` or its `with` block.

    Start a process with `env()` as its environment; it and its children go by this clock, and `move` moves it while
    they run.  What moves is the module `time`: `time.time`, `time_ns`, `clock_gettime(CLOCK_REALTIME)`, `gmtime`,
    `localtime` and `ctime`.  Monotonic clocks go on as they are.  `datetime.now()` reads the system's clock itself and
    does not move; nor does anything for an interpreter that ignores its environment (`python -I`).
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tenure-clock-")
        self._file = Path(self._folder.name) / "offset"
        self._file.write_bytes(OFFSET.pack(0))
        (Path(self._folder.name) / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
        with self._file.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), OFFSET.size)
        self.move(seconds)

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return `base` (None: this process's environment) with what makes a Python process go by this clock."""
        env = dict(os.environ if base is None else base)
        path = [self._folder.name, *filter(None, [env.get("PYTHONPATH")])]
        return env | {"PYTHONPATH": os.pathsep.join(path), VARIABLE: str(self._file)}

    def move(self, seconds: float) -> None:
        """Let the clock be `seconds` ahead of the real one (negative: behind) from now on."""
        OFFSET.pack_into(self._offset, 0, round(seconds * 1e9))

    def close(self) -> None:
        """Remove the clock's files; processes that go by it keep it as it was last."""
        self._offset.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
