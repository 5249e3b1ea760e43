"""Starts the command line as real processes, watches them, and ends them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from tenure import App
from tenure.broker import ProducerCounts
from tenure.cli.main import cli
from tenure.faults import process
from tenure.inspection import inspect
from tests.stage import marks
from tests.stage.marks import Execution

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
TENURE = Path(sys.executable).with_name("tenure")
JOBS = "tests.stage.apps.jobs"
SETTLED = ("done", "retried", "released", "dead", "cancelled")
"""The hand-outs' ends that a worker counts as well."""


def wait_for(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Return the first true value of `condition`; fail when there is none within `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Running:
    """A process of the command line in a group of its own, with its output in a file."""

    def __init__(self, args: list[str], log: Path, cwd: Path, env: dict[str, str]) -> None:
        self.args = args
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                args, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        """The worker processes of a worker."""
        return process.children(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the process and all that it started, as a terminal's Ctrl+C does."""
        os.killpg(self.pid, number)

    def wait(self, seconds: float = 15.0) -> int:
        """Return the exit code; fails when the process does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s: {' '.join(self.args[1:])}") from None

    def stop(self, seconds: float = 15.0) -> int:
        """Ask the process to end and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def destroy(self) -> None:
        """End the process and all that it started, whatever state they are in."""
        with suppress(ProcessLookupError):
            self.signal_group(signal.SIGKILL)
        self._process.wait()


class Worker(Running):
    """`tenure worker` with its name in the record; `counts` is what it wrote at its end."""

    def __init__(self, name: str, args: list[str], place: Path, env: dict[str, str]) -> None:
        self.name = name
        self.counts_file = place / f"{name}.counts"
        args = [*args, "--name", name, "--counts-file", str(self.counts_file)]
        super().__init__(args, place / f"{name}.log", place, env)

    @property
    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = json.loads(self.counts_file.read_text())
        return counts


class Stage:
    """One test's server, workers and commands, all in one folder; `close` leaves nothing running."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url = ""
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        self.env |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", marks.FOLDER: str(place), "NO_COLOR": "1"}
        self.workers: list[Worker] = []
        self._started: list[Running] = []
        self._apps: list[App] = []

    # Processes.

    server: Running

    def start_server(self, listen: str = "127.0.0.1:0", *options: str, under: tuple[str, ...] = ()) -> Running:
        """Start a server on this stage's file and return once it has said where it listens.

        `under` is a command that runs the rest of its words.
        """
        args = [*under, str(TENURE), "server", "--listen", listen, "--data", str(self.place / "jobs.db"), *options]
        log = self.place / "server.log"
        before = log.stat().st_size if log.exists() else 0
        server = self.server = self.start(args, log)

        def announced() -> re.Match[str] | None:
            assert server._process.poll() is None, f"the server did not start:\n{server.output}"
            return re.search(r"^tenure server on (tenure\S*://[^,]+),", server.output[before:], re.MULTILINE)

        self.url = wait_for(announced, 10, "the server's announcement").group(1)  # type: ignore[union-attr]
        return server

    def start_worker(
        self, name: str = "w", *options: str, app: str = JOBS, broker: str | None = None, wait: bool = True
    ) -> Worker:
        """Start a worker and return once it takes jobs, or at once where nobody is to `wait`."""
        args = [str(TENURE), "worker", "-A", app, "--broker", broker or self.url, *options]
        worker = Worker(name, args, self.place, self.env)
        self._started.append(worker)
        self.workers.append(worker)
        if wait:
            wait_for(lambda: f"worker {name}: " in worker.output, 15, f"worker {name} has started")
        return worker

    def start(self, args: list[str], log: Path) -> Running:
        """Start any command in the background."""
        running = Running(args, log, self.place, self.env)
        self._started.append(running)
        return running

    def run(self, *args: str, code: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `tenure ARGS` to its end; `code` is the exit code that is expected (None: any)."""
        done = subprocess.run(
            [str(TENURE), *args], cwd=self.place, env=self.env | env, capture_output=True, text=True, timeout=20,
            check=False,
        )  # fmt: skip
        assert code in (None, done.returncode), (
            f"tenure {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def told(self, *args: str) -> str:
        """Return what `tenure ARGS` prints about this stage's server, or to it.

        It runs in this process: the tests ask hundreds of times, and most of a command's time goes into its start.
        """
        done = CliRunner().invoke(cli, [*args, "--broker", self.url], catch_exceptions=False)
        assert done.exit_code == 0, f"tenure {' '.join(args)}: {done.exit_code}\n{done.output}"
        return done.stdout

    def ask(self, *args: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(self.told(*args, "--json"))

    def use(self, app: App, url: str | None = None) -> None:
        """Let this process add with `app`, at the server or through `url`."""
        app.use_broker(url or self.url)
        self._apps.append(app)

    def close(self) -> None:
        """End all that is left, and print the logs, which pytest shows for a test that failed."""
        for app in self._apps:
            app.close()
        for running in reversed(self._started):
            running.destroy()
        for log in dict.fromkeys(running.log for running in self._started):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}")

    # What the server and the tasks say.

    def totals(self) -> dict[str, Any]:
        """Return the record's sums."""
        with inspect(self.url) as inspection:
            totals: dict[str, Any] = inspection.record()["totals"]
        return totals

    def job(self, id: str) -> dict[str, Any]:
        """Return all that the server knows of a job."""
        with inspect(self.url) as inspection:
            return inspection.job(id)

    def wait_done(self, count: int, seconds: float = 20.0) -> None:
        """Wait until so many jobs are done."""
        wait_for(lambda: self.totals()["done"] >= count, seconds, f"{count} jobs done")

    def executions(self, job: str | None = None) -> list[Execution]:
        """Return the executions so far, of one job or of all."""
        return [one for one in marks.executions(self.place) if job in (None, one.job)]

    def let_go(self) -> None:
        """End every `hold`."""
        (self.place / marks.GO).touch()

    # The end of every test.

    def check(
        self, produced: ProducerCounts, *, killed: tuple[Worker, ...] = (), frozen: int | None = None
    ) -> dict[str, Any]:
        """Stop the workers and hold every account against the others; returns the record.

        `killed` are workers whose whole tree was killed: what they had counted ended with them.  `frozen` is a
        process that was stopped while it held a job, which then ran elsewhere.
        """
        for worker in self.workers:
            if worker not in killed and worker._process.poll() is None:
                assert worker.stop() == 0, worker.output[-3000:]
        record: dict[str, Any] = self.ask("record", "--verify")
        assert record["balanced"]
        assert record["verified"], record["differences"]
        assert record["overlaps"] == 0
        assert [pair for pair in marks.overlaps(self.place) if pair[0].pid != frozen] == []
        totals = record["totals"]
        assert (totals["running"], produced.unconfirmed) == (0, 0)
        assert (totals["added"], totals["duplicates"]) == (produced.added, produced.duplicates)
        for worker in self.workers:
            if worker not in killed:
                self._compare(worker, record["workers"].get(worker.name))
        return record

    def _compare(self, worker: Worker, row: dict[str, Any] | None) -> None:
        counted = {name: worker.counts[name] for name in (*SETTLED, "refused", "unknown", "added")}
        recorded = dict.fromkeys(counted, 0)
        if row is not None:  # one that was never given a job has no row
            recorded |= {name: row["handouts"][name] for name in SETTLED} | {"refused": row["refused"]}
        assert counted == recorded, f"worker {worker.name} counts otherwise than the record"
