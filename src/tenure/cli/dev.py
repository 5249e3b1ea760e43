"""`tenure dev`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import click

from tenure.cli.options import log_level_option
from tenure.cli.signals import no_more_ends, on_end
from tenure.errors import ConfigError

GRACE = 3
"""Seconds in which running jobs may finish before a worker of old code, or one that leaves, gives them back."""
PAUSE = 1.0
"""Seconds after which a worker that was ended from outside is started again."""

_ANNOUNCED = re.compile(r"tenure server on (\S+), data")


@click.command()
@click.option(
    "-A", "--app", required=True, metavar="MODULE[:NAME]",
    help="The module with your App, such as shop.jobs or shop.jobs:app.",
)  # fmt: skip
@click.option(
    "--listen", default="127.0.0.1:7333", show_default=True, metavar="ADDRESS",
    help="Where the server listens: HOST:PORT on this machine (port 0: any free one), or unix:PATH.",
)  # fmt: skip
@click.option(
    "--data", default=".tenure", show_default=True, metavar="FOLDER", type=click.Path(file_okay=False),
    help="What keeps the jobs from one run to the next; made when it is not there.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N", help="Worker processes."
)
@click.option(
    "--reload/--no-reload", default=None,
    help="Start the worker anew when a .py file changes; --no-reload: never.  [default: if watchfiles is installed]",
)  # fmt: skip
@click.option(
    "--watch", multiple=True, metavar="FOLDER", type=click.Path(exists=True, file_okay=False),
    help="Look at the files below this folder (may be given again).  [default: the current folder]",
)  # fmt: skip
@log_level_option
def dev(
    app: str, listen: str, data: str, processes: int, reload: bool | None, watch: tuple[str, ...], log_level: str
) -> None:
    """Run a server and a worker in one command, for development.

    When a .py file changes, a worker with the new code takes the place of the old one; jobs that run may finish within
    3 seconds, and are given back otherwise.  A worker that cannot import its app waits for the next change; one
    that was ended from outside starts again after a second.  Ctrl+C ends both, the worker first.

    Programs add jobs to it whose broker is the address that it prints, which is the default.  Reloading needs
    watchfiles: pip install 'tenure[reload]'.
    """
    from tenure.config import find_broker

    theirs = find_broker()
    folders = _folders_to_watch(reload, watch)
    level = ["--log-level", log_level]
    server = ["server", "--listen", listen, "--data", str(_folder(data) / "tenure.db"), *level]
    worker = ["worker", "-A", app, "--processes", str(processes), "--grace", f"{GRACE}s", *level]
    code = Development(server, worker, folders, theirs).run()
    no_more_ends()
    sys.exit(code)


def _folders_to_watch(reload: bool | None, watch: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders whose files are looked at; none: nothing is reloaded."""
    if reload is False:
        if watch:
            raise click.UsageError("--watch says what to reload for; leave it out, or --no-reload")
        return ()
    if importlib.util.find_spec("watchfiles") is not None:
        return watch or (".",)
    if reload or watch:
        raise ConfigError("reloading needs watchfiles, which is not installed: pip install 'tenure[reload]'")
    _say("nothing is reloaded without watchfiles: pip install 'tenure[reload]'")
    return ()


def _folder(path: str) -> Path:
    """Return the folder for the data, made so that version control leaves it alone."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--data {path}: {error.strerror}. Choose another folder") from None
    return folder


def _say(text: str) -> None:
    click.echo(f"tenure dev: {text}")


@dataclass(frozen=True, slots=True)
class Announced:
    """The server takes connections at `url`."""

    url: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is gone."""

    process: subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """A file has changed."""

    file: str


@dataclass(frozen=True, slots=True)
class Rested:
    """A worker that was ended from outside may start again."""


@dataclass(frozen=True, slots=True)
class Blind:
    """Files cannot be watched (any more)."""

    why: str


@dataclass(frozen=True, slots=True)
class Told:
    """Somebody wants it to end: Ctrl+C or SIGTERM."""


Event = Announced | Ended | Changed | Rested | Blind | Told


class Development:
    """A server, and a worker that is started anew when files in `folders` change, until told to leave.

    `server` and `worker` are the words of the two commands.  `theirs` is where programs in this folder add jobs.
    Everything that happens becomes an event, and the main thread deals with one after the other.
    """

    def __init__(self, server: Sequence[str], worker: Sequence[str], folders: Sequence[str], theirs: str) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._server_words = server
        self._worker_words = worker
        self._folders = folders
        self._theirs = theirs
        self._server: subprocess.Popen[str] | None = None
        self._worker: subprocess.Popen[str] | None = None
        self._url: str | None = None
        self._stale = False
        """The worker has old code and was told to leave."""
        self._leaving = False
        self._exit_code = 0
        self._unwatch = threading.Event()
        # Each ends by itself when nobody holds its pipe any more.  The worker holds the server's too, so that it can
        # settle its jobs also after this process was killed.
        self._server_pipe = os.pipe()
        self._worker_pipe = os.pipe()

    def run(self) -> int:
        """Serve and work until told to leave; returns the exit code."""
        on_end(lambda: self._events.put(Told()))
        watcher = threading.Thread(target=self._watch)
        if self._folders:
            watcher.start()
        try:
            self._server = self._start(self._server_words, self._server_pipe[0], stdout=subprocess.PIPE)
            while self._runs():
                self._on(self._events.get())
        finally:
            for fd in (*self._server_pipe, *self._worker_pipe):
                os.close(fd)
            self._unwatch.set()
            if self._folders:
                watcher.join()
        return self._exit_code

    def _runs(self) -> bool:
        return self._server is not None or self._worker is not None

    # Events.

    def _on(self, event: Event) -> None:
        match event:
            case Announced(url):
                self._on_announced(url)
            case Ended(process) if process is self._server:
                self._on_server_ended()
            case Ended():
                self._on_worker_ended()
            case Changed(file):
                self._on_changed(file)
            case Rested():
                self._on_rested()
            case Blind(why):
                self._fail(f"files cannot be watched ({why}); --no-reload does without")
            case Told():
                self._leave()

    def _on_announced(self, url: str) -> None:
        self._url = url
        if url != self._theirs:
            _say(f"programs here add their jobs to {self._theirs}; for this server set TENURE_BROKER={url}")
        if not self._leaving:
            self._start_worker()

    def _on_server_ended(self) -> None:
        assert self._server is not None  # it is what has ended
        code, self._server = self._server.returncode, None
        if not self._leaving:
            self._fail(f"the server has ended ({code})")

    def _on_worker_ended(self) -> None:
        assert self._worker is not None  # there is one at a time
        code, self._worker = self._worker.returncode, None
        if self._leaving:
            self._leave()
        elif self._stale:
            self._start_worker()
        elif code <= 0:  # a signal, or somebody told it to leave: that says nothing about the code
            _say(f"the worker was ended from outside ({code}); it starts again in a second")
            again = threading.Timer(PAUSE, self._events.put, (Rested(),))
            again.daemon = True
            again.start()
        elif self._folders:
            _say(f"the worker has ended ({code}); it starts again when a file has changed")
        else:
            self._fail(f"the worker has ended ({code})")

    def _on_changed(self, file: str) -> None:
        if self._leaving or self._stale:
            return
        _say(f"{file} has changed")
        if self._worker is not None:
            self._stale = True
            self._worker.terminate()
        elif self._url is not None:
            self._start_worker()

    def _on_rested(self) -> None:
        if not self._leaving and self._worker is None:  # a file may have changed meanwhile
            self._start_worker()

    def _leave(self) -> None:
        """End the worker, then the server; a worker that is told twice ends at once."""
        self._leaving = True
        for process in (self._worker, self._server):
            if process is not None:
                process.terminate()
                return

    def _fail(self, why: str) -> None:
        _say(why)
        self._exit_code = 1
        self._leave()

    # Processes and files.

    def _start_worker(self) -> None:
        self._stale = False
        assert self._url is not None  # it was announced
        words = [*self._worker_words, "--broker", self._url]
        self._worker = self._start(words, self._worker_pipe[0], self._server_pipe[1])

    def _start(self, words: Sequence[str], tether: int, *held: int, stdout: int | None = None) -> subprocess.Popen[str]:
        # In a group of its own: a terminal's Ctrl+C is for this process, which ends the others in their order.
        process = subprocess.Popen(  # noqa: S603  (this interpreter, and its own commands)
            [sys.executable, "-m", "tenure.cli.tether", str(tether), *words],
            stdin=subprocess.DEVNULL, stdout=stdout, text=True, pass_fds=(tether, *held), process_group=0,
        )  # fmt: skip
        threading.Thread(target=self._follow, args=(process,), daemon=True).start()
        return process

    def _follow(self, process: subprocess.Popen[str]) -> None:
        """Report where the server is, and the end of either."""
        for line in process.stdout or ():
            click.echo(line, nl=False)
            announced = _ANNOUNCED.match(line)
            if announced is not None:
                self._events.put(Announced(announced[1]))
        process.wait()
        self._events.put(Ended(process))

    def _watch(self) -> None:
        """Report changes of files."""
        from watchfiles import PythonFilter, watch

        try:
            for changes in watch(*self._folders, watch_filter=PythonFilter(), stop_event=self._unwatch):
                self._events.put(Changed(os.path.relpath(min(path for _, path in changes))))
        except (OSError, RuntimeError) as error:  # no more watches to be had, a folder that is gone
            self._events.put(Blind(str(error)))
