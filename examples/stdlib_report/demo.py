"""The demo: measure the standard library with jobs, kill a worker process and cut every connection meanwhile.

`python -m examples.stdlib_report.demo` ends with exit code 0 only if every job was done, none was with two workers
at once, and the producer, the worker, the tasks' own marks and the server's record agree to the last number.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from examples.stdlib_report import findings, marks
from examples.stdlib_report.breakage import Breakage
from examples.stdlib_report.checks import Evidence, check_all
from examples.stdlib_report.display import Display, print_checks, print_report
from examples.stdlib_report.jobs import app
from examples.stdlib_report.processes import Interrupted, Problem, Processes
from examples.stdlib_report.producer import TWICE, Producer, source_files, stdlib
from tenure.faults import Proxy
from tenure.inspection import Inspection, inspect

COUNTS = "counts.json"

SECONDS = 60.0
"""The whole demo may take so long."""


def main() -> int:
    """Run the demo; returns the exit code."""
    begin = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tenure-demo-") as name,
            Processes(Path(name), begin + SECONDS) as processes,
        ):
            seen = perform(Path(name), processes)
    except (Problem, ConnectionError) as problem:
        print(f"\nThe demo could not be finished: {problem}", file=sys.stderr)
        return 1
    except Interrupted:
        print("\nInterrupted. Everything that the demo had started is ended.", file=sys.stderr)
        return 130
    results = check_all(seen)
    print_checks(results)
    print(f"The demo took {time.monotonic() - begin:.1f} s.")
    return 0 if all(result.holds for result in results) else 1


def perform(folder: Path, processes: Processes) -> Evidence:
    """Do it all in `folder`, print the report and the record, and return what was seen."""
    files = source_files(stdlib())
    findings.prepare(folder)
    processes.start("server", "server", "--listen", "127.0.0.1:0", "--data", str(folder / "tenure.db"))
    url = processes.server_url()
    print(f"A server on {url}, a worker with 2 processes, and {len(files)} source files in {stdlib()}.", flush=True)
    with Proxy(url) as proxy, inspect(url) as inspection, processes.ending("worker"):
        _start_worker(processes, proxy.url, folder)
        app.use_broker(proxy.url)
        broken = produce_and_break(files, folder, processes, proxy, inspection)
        processes.stop("worker")
        print_report(findings.load(folder), stdlib())
        print("$ tenure record --verify")
        verified = processes.run("record", "--verify", "--broker", url) == 0
        print()
        seen = _evidence(files, folder, inspection, verified, broken)
        app.close()
    processes.stop("server")
    return seen


def produce_and_break(
    files: list[str], folder: Path, processes: Processes, proxy: Proxy, inspection: Inspection
) -> Breakage:
    """Add all jobs and wait until all have ended; meanwhile cut the connections and kill a worker process."""
    producer = Producer(files, folder)
    with Display(len(files)) as display:
        breakage = Breakage(proxy, folder, len(files), display.say)
        # The worker is up before the jobs come, so that the cut hits both sides at work.
        processes.wait_for(lambda: any(queue["waiting"] for queue in inspection.queues()))
        producer.start()
        ended = False
        while not ended:
            processes.watch()
            producer.check()
            all_added = producer.finished  # looked at before the record is, or the last jobs could be missing in it
            totals = inspection.record()["totals"]
            display.show(producer.added, totals["done"])
            breakage.look(producer.added, totals["done"])
            ended = all_added and not any(totals[state] for state in ("scheduled", "ready", "running"))
            time.sleep(0.03)
    return breakage


def _start_worker(processes: Processes, url: str, folder: Path) -> None:
    processes.start(
        "worker", "worker", "-A", "examples.stdlib_report.jobs", "--broker", url, "--processes", "2", "--threads", "4",
        "--name", "demo", "--counts-file", str(folder / COUNTS), "--log-level", "warning",
    )  # fmt: skip


def _evidence(files: list[str], folder: Path, inspection: Inspection, verified: bool, broken: Breakage) -> Evidence:
    if broken.cut is None or broken.killed is None:
        raise Problem("all jobs were done before the connections were cut and a process was killed in mid-job")
    runs = marks.runs(marks.read(folder))
    again = [job for job, each in marks.by_job(runs).items() if len(each) > 1]
    return Evidence(
        files=len(files),
        twice=TWICE,
        findings=len(findings.load(folder)),
        record=inspection.record(),
        verified=verified,
        histories={job: inspection.job(job)["handouts"] for job in again},
        producer=app.counts,
        worker=json.loads((folder / COUNTS).read_text()),
        runs=runs,
        cut=broken.cut,
        killed=broken.killed,
    )


if __name__ == "__main__":
    sys.exit(main())
