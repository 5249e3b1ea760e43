"""A real system to break in a test: a server of its own, a worker process of your app, and a proxy before both.

With pytest the fixture `faults` starts one for a test; elsewhere use `faults_for`.
docs/howto/test-your-tasks-against-faults.md shows how a task is proven safe to repeat.  It needs Linux.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tenure.app import App
from tenure.faults import Direction, Proxy, Verdict, checks, process
from tenure.inspection import inspect
from tenure.job import Job
from tenure.names import shown
from tenure.worker.load import load_app

WORKER = "faults"
"""The worker's name in the record."""
VISIBILITY_TIMEOUT = 2.0
"""Seconds for which the worker holds a job without a sign of life: short, so that no test waits long for it."""
START_LIMIT = 30.0
"""Seconds in which the server and the worker have to be ready."""
STOP_LIMIT = 35.0
"""Seconds in which the worker has to end, its grace of 25 s included."""

_DONE = re.compile(rb"\A(?:done |(?:retry|release|dead|cancel) .*^done )", re.DOTALL | re.MULTILINE)
"""A write that settles jobs, and one of them as done; an add may have the same bytes among its arguments."""
_SETTLED = ("done", "retried", "released", "dead", "cancelled")
"""The ends of a hand-out that a worker counts as well."""


class Program:
    """A command of Tenure in a process group of its own, with all that it says in a file."""

    def __init__(self, args: list[str], log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as out:
            self._begin = out.tell()
            self._args = args
            self._process = subprocess.Popen(  # noqa: S603  (our own command)
                [sys.executable, "-m", "tenure", *args],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self._log.read_bytes()[self._begin :].decode(errors="replace")

    def says(self, pattern: str) -> str:
        """Wait until a line of its output matches, and return the first group; raises RuntimeError with the output."""
        end = time.monotonic() + START_LIMIT
        while (found := re.search(pattern, self.output, re.MULTILINE)) is None:
            if (code := self._process.poll()) is not None or time.monotonic() > end:
                what = "did not become ready" if code is None else f"ended with exit code {code}"
                raise RuntimeError(f"tenure {' '.join(self._args)} {what}:\n{self.output}")
            time.sleep(0.01)
        return found.group(1)

    def stop(self) -> int | None:
        """Let it end in good order and return its exit code, None where it does not end."""
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_LIMIT)
        return None

    def destroy(self) -> None:
        """End it with all that it started; harmless when it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class LostAcks:
    """Script for the proxy: the word of a success never arrives, and the process that sends it dies."""

    def __init__(self, kill: Callable[[], object]) -> None:
        self._kill = kill
        self._lock = threading.Lock()
        self._wanted = 0

    @property
    def wanted(self) -> int:
        """How many are still to be lost."""
        return self._wanted

    def want(self, count: int) -> None:
        """Lose so many more."""
        with self._lock:
            self._wanted += count

    def __call__(self) -> LostAcks:
        """Return the script of one connection, which is the same for all of them."""
        return self

    def judge(self, direction: Direction, data: bytes) -> Verdict:
        """Swallow what says that a job is done, where that is wanted."""
        if direction is Direction.REQUEST and self._wanted and _DONE.search(data):
            with self._lock:
                self._wanted -= 1
            self._kill()
            return Verdict(swallow=len(data), cut=True)
        return Verdict(forward=len(data))


class Faults:
    """A running system, and what can be broken of it.  `proxy` is what all connections of test and worker go through.

    `app` adds its jobs there.  The worker has one process with four threads and imports the app anew: what a test
    patches in its own process does not reach it, what it sets in the environment before does.
    """

    def __init__(self, app: App, place: str, folder: Path, stack: ExitStack) -> None:
        self.app = app
        self._folder = folder
        self._stack = stack
        self._counts = folder / "worker.counts"
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        stack.callback(self._print_logs)
        self._acks = LostAcks(self._kill_processes)
        self._server, self._url = self._start_server("127.0.0.1:0")
        self.proxy = stack.enter_context(Proxy(self._url, script=self._acks))
        self._worker = self._start_worker(place)

    def cut(self) -> int:
        """Reset every connection to the server now, of the test and of the worker; returns how many they were."""
        return self.proxy.cut()

    def silent_server(self, seconds: float) -> None:
        """Let the server be silent for `seconds` from now: connections stay open, and nothing goes either way.

        Raises ValueError for seconds that are not above 0.
        """
        self.proxy.stall(checks.seconds("seconds", seconds), new_connections=False)

    def kill_worker(self, running: Job[Any] | None = None, timeout: float = 10.0) -> None:
        """Kill the worker process with SIGKILL; a new one starts by itself and is given the jobs again.

        With `running`: as soon as that job runs.  Raises AssertionError where it does not within `timeout` seconds,
        TypeError for what is no job, and ValueError for seconds that are not above 0.
        """
        checks.seconds("timeout", timeout)
        if not isinstance(running, Job | None):
            raise TypeError(f"kill_worker takes a job, as task.delay() returns it, not {shown(running)}")
        if running is not None:
            _wait(lambda: running.state() == "running", timeout, f"job {running.id} runs")
        _wait(self._kill_processes, timeout, "there is a worker process")

    def kill_server(self) -> None:
        """Kill the server with SIGKILL and start it again, with the same file and at the same address."""
        self._server.destroy()
        self._server, _ = self._start_server(self._url.removeprefix("tenure://"))

    def lose_ack(self, count: int = 1) -> None:
        """Lose the word of the next `count` successes: the task returns, and the worker process dies in that moment.

        To the server the job has not been done, and so it runs again.  Raises ValueError for a count below 1.
        """
        checks.count("count", count)
        self._acks.want(count)

    def check(self, *, timeout: float = 30.0, scheduled: int = 0) -> dict[str, Any]:
        """Wait until no job is left, end the worker, and hold all accounts against each other; returns the record.

        Raises AssertionError where they do not agree, where jobs are left after `timeout` seconds, and where what
        `lose_ack` was to lose never came, and ValueError for numbers that cannot be.  `scheduled` are jobs that were
        called for a later time.
        """
        __tracebackhide__ = True
        checks.seconds("timeout", timeout)
        checks.count("scheduled", scheduled, least=0)
        self.proxy.pass_through()
        self._wait_for_rest(timeout, scheduled)
        if self._acks.wanted:
            raise AssertionError(f"lose_ack: {self._acks.wanted} more successes were to be lost, and none came")
        code = self._worker.stop()
        with inspect(self._url) as inspection:
            answer = inspection.record(verify=True)
        record: dict[str, Any] = answer["record"]
        counted = json.loads(self._counts.read_text(encoding="utf-8")) if code == 0 else {}
        problems = [
            *([] if code == 0 else [f"the worker ended with exit code {code}"]),
            *(f"the record differs from the jobs: {difference}" for difference in answer["differences"]),
            *_differences(record, counted, self.app.counts.added),
        ]
        if problems:
            raise AssertionError("\n- ".join(["the accounts do not agree:", *problems]))
        return record

    def _start_server(self, listen: str) -> tuple[Program, str]:
        args = ["server", "--listen", listen, "--data", str(self._folder / "jobs.db")]
        server = self._start("server", args)
        return server, server.says(r"^tenure server on (tenure://[^,\s]+),")

    def _start_worker(self, place: str) -> Program:
        args = ["worker", "-A", place, "--broker", self.proxy.url, "--processes", "1", "--threads", "4"]
        args += ["--visibility-timeout", f"{VISIBILITY_TIMEOUT}", "--name", WORKER, "--counts-file", str(self._counts)]
        worker = self._start("worker", args)
        worker.says(rf"(worker {WORKER}: )")
        return worker

    def _start(self, name: str, args: list[str]) -> Program:
        program = Program(args, self._folder / f"{name}.log", self._env)
        self._stack.callback(program.destroy)
        return program

    def _kill_processes(self) -> bool:
        """Kill the worker's processes, which its supervisor replaces; returns whether there were any."""
        children = process.children(self._worker.pid)
        for child in children:
            with suppress(ProcessLookupError):
                process.kill(child)
        return bool(children)

    def _left(self) -> dict[str, int]:
        """Return how many jobs are in each state that is no end, without those that are in none."""
        with inspect(self._url) as inspection:
            totals = inspection.record()["totals"]
        return {state: totals[state] for state in ("scheduled", "ready", "running") if totals[state]}

    def _wait_for_rest(self, timeout: float, scheduled: int) -> None:
        __tracebackhide__ = True

        def rests() -> bool:
            left = self._left()
            return left.pop("scheduled", 0) <= scheduled and not left

        try:
            _wait(rests, timeout, "all jobs have ended")
        except AssertionError as error:
            raise AssertionError(f"{error}; left are {self._left()}") from None

    def _print_logs(self) -> None:
        """Print what the processes said, which pytest shows for a test that failed."""
        for log in sorted(self._folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')[-6000:]}")  # noqa: T201


@contextmanager
def faults_for(place: str, folder: str | Path | None = None) -> Iterator[Faults]:
    """Run a server and a worker of the app at `place` inside of the `with` block, and let that app add its jobs there.

    `place` is written as for `tenure worker -A`, such as `shop.jobs:app`.  `folder` keeps the server's file and what
    the processes say (None: a temporary one).  The app's own broker comes back after the block.  Raises RuntimeError
    with their output where the server or the worker does not start, and ConfigError for what is no app.
    """
    app = load_app(place)
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-faults-"))
        faults = Faults(app, place, Path(folder), stack)
        with app.on_broker(faults.proxy.url):
            yield faults


def _wait(condition: Callable[[], object], timeout: float, what: str) -> None:
    __tracebackhide__ = True
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(0.01)


def _differences(record: Mapping[str, Any], counted: Mapping[str, int], added: int) -> Iterator[str]:
    """Say where the record differs from itself, from what the worker counted, and from what the test added."""
    if not record["balanced"]:
        yield f"the record is not balanced: {record['totals']}"
    if record["overlaps"]:
        yield f"{record['overlaps']} times two workers had the same job at once"
    if record["totals"]["added"] < added:  # above it are the jobs that tasks have added
        yield f"the test added {added} jobs, and the record has {record['totals']['added']}"
    row = record["workers"].get(WORKER)
    known = {} if row is None else {name: row["handouts"][name] for name in _SETTLED} | {"refused": row["refused"]}
    for name, count in counted.items():
        if name in (*_SETTLED, "refused") and known.get(name, 0) != count:
            yield f"the worker counted {count} {name}, and the record has {known.get(name, 0)}"
