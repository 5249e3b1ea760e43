"""The processes that the demo starts: a server and a worker, each with a log file, each ended by its process id."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
"""The folder from which the worker finds the module `examples.stdlib_report.jobs`."""

LAST_LINES = 15


class Problem(Exception):
    """What keeps the demo from going on, in words for the person at the terminal."""


class Interrupted(Exception):
    """The demo was told to end, by Ctrl+C or SIGTERM."""


class Processes:
    """All processes that the demo has started; leaving its `with` block ends those that still run.

    `deadline` is a moment of `time.monotonic()`.  Inside the block Ctrl+C and SIGTERM only leave a note, which
    `watch` and everything that waits here turn into Interrupted: so none comes while a process is being started or
    ended, and nothing is left behind.
    """

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._all: dict[str, subprocess.Popen[bytes]] = {}
        self._told_to_end = False
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._old_handlers[number] = signal.signal(number, self._take_note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(self._all):  # the worker before the server that it talks to
            _end(self._all[name])
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def start(self, name: str, *arguments: str) -> int:
        """Start `tenure ARGUMENTS`, its output in the file `NAME.log`; returns the process id."""
        with self._log(name).open("wb") as log:
            self._all[name] = subprocess.Popen(
                _command(*arguments),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl+C reaches the demo alone, which then ends them in order
            )
        return self._all[name].pid

    @contextmanager
    def ending(self, name: str) -> Iterator[None]:
        """End the process, if it still runs, when this block is left: before what it talks to is gone."""
        try:
            yield
        finally:
            if name in self._all:
                _end(self._all.pop(name))

    def run(self, *arguments: str) -> int:
        """Run `tenure ARGUMENTS` to its end, its output where ours goes; returns its exit code."""
        sys.stdout.flush()
        process = subprocess.Popen(_command(*arguments), cwd=ROOT, stdin=subprocess.DEVNULL)
        try:
            self.wait_for(lambda: process.poll() is not None)
        finally:
            _end(process)
        return process.returncode

    def watch(self) -> None:
        """Raise Problem if a process has ended by itself or the time is over, Interrupted if told to end."""
        if self._told_to_end:
            raise Interrupted
        for name, process in self._all.items():
            if process.poll() is not None:
                raise Problem(f"the {name} ended by itself with exit code {process.returncode}. {self._tail(name)}")
        if time.monotonic() > self._deadline:
            logs = "\n".join(map(self._tail, self._all))
            raise Problem(f"its time is over; this machine may be too busy for it.\n{logs}")

    def wait_for(self, question: Callable[[], bool], pause: float = 0.02) -> None:
        """Ask again every `pause` seconds until the answer is True; raises as `watch` does."""
        while not question():
            self.watch()
            time.sleep(pause)

    def server_url(self) -> str:
        """Wait for the server's first line and return the URL in it."""
        self.wait_for(lambda: self._announced() is not None)
        url = self._announced()
        assert url is not None  # what was written stays written
        return url

    def stop(self, name: str) -> None:
        """Ask a process to leave (SIGTERM) and wait until it has; raises Problem when it does not end well."""
        process = self._all.pop(name)
        try:
            process.send_signal(signal.SIGTERM)
            self.wait_for(lambda: process.poll() is not None)
        finally:
            _end(process)
        if process.returncode != 0:
            raise Problem(f"the {name} left with exit code {process.returncode}. {self._tail(name)}")

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self._told_to_end = True

    def _announced(self) -> str | None:
        text = self._log("server").read_text("utf-8", "replace")
        found = re.search(r"^tenure server on (\S+),", text, re.MULTILINE)
        return found[1] if found else None

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
        text = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return f"The end of what the {name} wrote:\n{text}"


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tenure", *arguments]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask twice, which tells a worker to stop its jobs at once, and kill what is left; harmless after the end."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(2)
            return
        except subprocess.TimeoutExpired:
            continue
    process.wait()
