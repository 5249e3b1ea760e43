"""The producer: one job for each source file of the standard library."""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.stdlib_report.jobs import app, measure
from examples.stdlib_report.processes import Problem
from tenure import AddError

NOT_OURS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
SLICE = 20
TWICE = 10
"""So many files are added a second time: the same key is the same job, so nothing comes of it."""


def stdlib() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(folder: Path) -> list[str]:
    """Return the paths of all `.py` files below `folder`, without tests and installed packages."""
    return sorted(
        str(path) for path in folder.rglob("*.py") if NOT_OURS.isdisjoint(path.relative_to(folder).parts[:-1])
    )


class Producer:
    """Adds the jobs in a thread of its own, so that they can be watched (and disturbed) meanwhile.

    `added` counts the files whose jobs are safe, `finished` tells that all are.
    """

    def __init__(self, files: Sequence[str], folder: Path) -> None:
        self.added = 0
        self.finished = False
        self._error: Exception | None = None
        self._files = files
        self._folder = str(folder)
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Raise Problem if it has stopped before the end."""
        if self._error is not None:
            raise Problem(f"jobs could not be added: {self._error!r}")

    def _run(self) -> None:
        try:
            for index, files in enumerate(_slices(self._files)):
                if index % 2:
                    self._add_together(files)
                else:
                    self._add_singly(files)
                self.added += len(files)
            self._add_together(self._files[:TWICE])
            self.finished = True
        except Exception as error:  # noqa: BLE001  (whatever it is, the main thread has to hear of it)
            self._error = error

    def _add_singly(self, files: Sequence[str]) -> None:
        for path in files:
            measure.delay(path, self._folder)

    def _add_together(self, files: Sequence[str]) -> None:
        for job in app.add_many([measure.s(path, self._folder) for path in files]):
            if isinstance(job, AddError):
                raise job


def _slices(files: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(files), SLICE):
        yield files[start : start + SLICE]
