"""A supervisor's handle on one of its worker processes: start it, hear it, tell it, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tenure.worker.keeper import Watched
from tenure.worker.options import ChildOptions, WorkerOptions, new_session
from tenure.worker.table import Table

LAST_OVERTIME = 5.0
"""Seconds for which a lease is kept beyond the time at which a job over its time limit costs its process."""

_BLOCKED = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}


class Handle:
    """One worker process with its session, its table and its two pipes; made by `start`, from the main thread."""

    def __init__(self, options: WorkerOptions, broker: str | None, name: str, started_at: float) -> None:
        self.session = new_session()
        slots = (1, 1) if options.isolate else (options.threads, options.async_slots)
        self.table = Table.create(sum(slots))
        self.started_at = started_at
        self.since = started_at
        """When it began what it does now: to start, or to take jobs."""
        self.left = False
        self.stopped = False
        self.killed_by_us = False
        self.overran = False
        """It was ended because a job in it went on after its time limit."""
        self.failed = False
        """It has reported why it cannot work."""
        self.ready = False
        """It has imported the app and takes jobs, as far as it may."""
        self.worn = False
        """It is to be replaced, and counts as none of the worker's processes any more."""
        self.resting = False
        """Being replaced, it takes nothing new."""
        self._leaving = False
        self.replaces: Handle | None = None
        """The worn process whose slots this one takes over, as they become free."""
        overtime = 2 * options.grace + LAST_OVERTIME
        self.watched = Watched(
            self.table, lambda: self.stopped, slots, overtime, options.isolate, self._tell_to_look, self.session
        )
        commands_out, self._commands = os.pipe()
        os.set_blocking(self._commands, False)  # one that reads nothing any more holds nobody up
        self.reports_fd, reports_in = os.pipe()
        os.set_blocking(self.reports_fd, False)
        self._heard = b""
        self.deaf = False
        """Its end of the pipe for reports is closed: nothing more will come."""
        child = ChildOptions(
            replace(options, broker=broker, name=name, threads=slots[0], async_slots=slots[1]),
            session=self.session,
            parent=os.getpid(),
            table_fd=self.table.fd,
            commands_fd=commands_out,
            reports_fd=reports_in,
            started_at=started_at,
        )
        try:
            self._process = _spawn(child)
        except OSError:
            self.close()
            raise
        finally:
            os.close(commands_out)
            os.close(reports_in)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell_to_drain(self) -> None:
        """Ask it to take nothing new, finish and leave; harmless when it is gone or was asked before."""
        self.table.take.forbid()
        self._tell(b"drain\n")

    def has_begun(self) -> bool:
        """Whether it may hold a job; once it was told to drain, one that had not begun never does."""
        return self.ready or self.table.take.written_at() > 0.0

    def tell_to_make_room(self) -> None:
        """Ask it to leave as `tell_to_drain` does, but with all the time that its jobs take; a second time: nothing."""
        if not self._leaving:
            self._leaving = True
            self.table.take.forbid()
            self._tell(b"make-room\n")

    def tell_of(self, receipt: bytes) -> None:
        """Have it tell whom it concerns how this hand-out has ended, whose own process is gone."""
        self._tell(b"tell-of %b\n" % receipt)

    def _tell_to_look(self) -> None:
        self._tell(b"look\n")

    def _tell(self, command: bytes) -> None:
        with suppress(OSError):
            os.write(self._commands, command)

    def kill(self) -> None:
        """End it at once; it is reaped by `poll`."""
        if self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> str | None:
        """Look what became of it; returns None while it lives, else how it ended (`SIGKILL`, `exit code 3`)."""
        while True:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return self._ended(0, "an unknown end")
            if pid == 0:
                return None
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                self.stopped = os.WIFSTOPPED(status)
            elif os.WIFSIGNALED(status):
                return self._ended(-os.WTERMSIG(status), _signal_name(os.WTERMSIG(status)))
            else:
                code = os.WEXITSTATUS(status)
                return self._ended(code, f"exit code {code}")

    def _ended(self, code: int, how: str) -> str:
        self._process.returncode = code  # or Popen would wait for it a second time
        return how

    def hear(self) -> list[dict[str, Any]]:
        """Return the reports that have come in since the last time."""
        try:
            while data := os.read(self.reports_fd, 65536):
                self._heard += data
            self.deaf = True
        except BlockingIOError:
            pass
        *lines, self._heard = self._heard.split(b"\n")
        return [report for line in lines if (report := _read(line)) is not None]

    def close(self) -> None:
        """Close what belongs to a process that is gone."""
        os.close(self._commands)
        os.close(self.reports_fd)
        self.table.close()


def _spawn(child: ChildOptions) -> subprocess.Popen[bytes]:
    # Blocked signals stay blocked over the exec, so none can hit the child before it has its handlers.
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        return subprocess.Popen(  # noqa: S603  (this interpreter, and options that were checked)
            [sys.executable, "-m", "tenure.worker.child", child.to_json()],
            env=child.to_environment(os.environ),
            stdin=subprocess.DEVNULL,
            pass_fds=(child.table_fd, child.commands_fd, child.reports_fd),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _read(line: bytes) -> dict[str, Any] | None:
    """Read one report; what a task has written into the pipe by mistake is none."""
    try:
        report = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
