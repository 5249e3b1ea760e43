"""The commands as a person meets them: beginnings, refusals, help, and the quiet of an idle worker."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenure.cli.main import cli
from tests.stage.apps import jobs
from tests.stage.harness import JOBS, TENURE, Stage, wait_for

COMMANDS = (
    "server", "worker", "record", "queues", "job", "dead", "dead ls", "dead show", "dead requeue", "dead purge",
    "chaos",
)  # fmt: skip


def test_help_of_every_command(bare: Stage) -> None:
    shown = bare.run("--help").stdout
    for command in COMMANDS:
        words = command.split()
        assert words[0] in shown
        text = CliRunner().invoke(cli, [*words, "--help"], prog_name="tenure").stdout
        assert text.startswith(f"Usage: tenure {command} ")
        assert "\n\n  " in text, "a sentence says what the command is for"
        assert "--help" in text
        assert command in ("server", "dead", "chaos") or "--broker URL" in text
        assert max(map(len, text.splitlines())) <= 100


def _refused(stage: Stage, *args: str, says: tuple[str, ...], code: int = 1) -> None:
    done = stage.run(*args, code=code)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= (1 if code == 1 else 4), done.stderr
    for text in says:
        assert text in done.stderr


def test_what_is_refused_is_said_in_a_line(bare: Stage) -> None:
    _refused(bare, "server", "--listen", "0.0.0.0:0", says=("tenure: ", "other machines", "127.0.0.1"))
    _refused(bare, "server", "--listen", "nonsense", says=("HOST:PORT",))
    _refused(bare, "server", "--data", "no/such/folder/x.db", says=("no/such/folder",))
    _refused(bare, "record", "--broker", "nonsense", says=("--broker", "tenure://127.0.0.1:7333"))
    _refused(bare, "record", "--broker", "tenure://127.0.0.1:1", says=("127.0.0.1:1", "tenure server"))
    _refused(bare, "worker", "-A", "tests.stage.apps.no_tasks", says=("no tasks", "@app.task"))
    _refused(bare, "worker", "-A", "tests.stage.marks", says=("has no App",))
    _refused(bare, "worker", "-A", JOBS, "--broker", "memory://", says=("memory://", "app.worker().run()"))
    _refused(bare, "worker", says=("-A",), code=2)
    _refused(
        bare, "worker", "-A", JOBS, "--counts-file", "no/such/folder/counts",
        says=("--counts-file", "no/such/folder/counts (No such file or directory)", "name one in a folder"), code=2,
    )  # fmt: skip
    _refused(bare, "job", "12", says=("32 hexadecimal digits",), code=2)
    _refused(bare, "dead", "purge", says=("--all",), code=2)


def test_an_app_that_does_not_import(bare: Stage) -> None:
    begun = time.monotonic()
    failed = bare.run("worker", "-A", "tests.stage.apps.fails_to_import", code=1)
    assert time.monotonic() - begun < 8, "it is not tried again and again"
    assert "fails_to_import.py" in failed.stderr
    assert 'return int("not a number")' in failed.stderr
    assert "ValueError: invalid literal for int()" in failed.stderr
    assert failed.stderr.count("Traceback") == 1
    missing = bare.run("worker", "-A", "shopp.jobs", code=1)
    assert "No module named 'shopp'" in missing.stderr


def test_the_settings_of_an_app_in_the_current_folder(bare: Stage) -> None:
    (bare.place / "own.py").write_text("from tenure import App\n\napp = App('own', pool_size=7)\n")
    shown = bare.run("settings", "-A", "own", "--json")
    assert {"name": "pool_size", "value": 7, "source": "App(pool_size=)"} in json.loads(shown.stdout)["app"]


@pytest.mark.parametrize(
    ("code", "error"),
    [("import no_such_module", "No module named 'no_such_module'"), ("raise SystemExit('no config')", "no config")],
)
def test_the_settings_of_an_app_that_does_not_import(bare: Stage, code: str, error: str) -> None:
    (bare.place / "broken.py").write_text(f"{code}\n")
    failed = bare.run("settings", "-A", "broken", code=1)
    assert failed.stderr.startswith("tenure: -A broken could not be imported:\nTraceback")
    assert "broken.py" in failed.stderr.splitlines()[2], "it begins with the app's own code"
    assert error in failed.stderr.splitlines()[-1]
    missing = bare.run("settings", "-A", "shopp.jobs", code=1).stderr.splitlines()
    assert missing == [
        "tenure: -A shopp.jobs could not be imported:", "ModuleNotFoundError: No module named 'shopp'"
    ]  # fmt: skip


def test_one_server_a_port_and_a_file(stage: Stage) -> None:
    port = stage.url.rpartition(":")[2]
    taken = stage.run("server", "--listen", f"127.0.0.1:{port}", "--data", "other.db", code=1)
    assert f"127.0.0.1:{port}" in taken.stderr
    assert "another" in taken.stderr.lower()
    assert list(stage.place.glob("other.db*")) == [], "no file is left of a server that never was"
    second = stage.run("server", "--listen", "127.0.0.1:0", "--data", str(stage.place / "jobs.db"), code=1)
    assert "jobs.db" in second.stderr
    for refused in (taken, second):
        assert len(refused.stderr.splitlines()) == 1
    jobs.work.delay(1)  # the first one is as well as before
    stage.start_worker("w", "--processes", "1")
    stage.wait_done(1)
    stage.check(jobs.app.counts)


def test_a_unix_socket(bare: Stage) -> None:
    bare.start_server("unix:a socket")
    assert bare.url == f"tenure+unix://{bare.place}/a%20socket"
    bare.use(jobs.app)
    for number in range(20):
        jobs.work.delay(number)
    bare.start_worker("w", "--processes", "2")
    bare.wait_done(20)
    assert "(total)" in bare.run("record", "--broker", bare.url).stdout
    bare.check(jobs.app.counts)
    taken = bare.run("server", "--listen", "unix:a socket", "--data", "other.db", code=1)
    assert "another server is using it" in taken.stderr
    assert list(bare.place.glob("other.db*")) == []
    second = bare.run("server", "--listen", "unix:other socket", "--data", str(bare.place / "jobs.db"), code=1)
    assert "in use by another tenure server" in second.stderr
    assert not (bare.place / "other socket").exists()
    assert bare.server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words", [["worker", "-A", JOBS], ["server"], ["dev", "-A", JOBS], ["chaos"]], ids=lambda w: w[0]
)
def test_a_signal_while_a_command_is_imported_ends_it_quietly(bare: Stage, words: list[str], number: int) -> None:
    # In the place of a library that is imported early on, a module that takes its time.
    (bare.place / "msgpack.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    bare.env["PYTHONPATH"] = os.pathsep.join([str(bare.place), bare.env["PYTHONPATH"]])
    for how, command in enumerate(([str(TENURE)], [sys.executable, "-m", "tenure"])):
        running = bare.start([*command, *words], bare.place / f"early{how}.log")
        wait_for(lambda running=running: running.output, 10, "the import has begun")  # type: ignore[misc]
        running.signal(number)
        assert running.wait() == 0
        assert running.output == "importing\n"


MODULE = """
from tenure import App

app = App("shop")


@app.task
def charge(order: int) -> str:
    return f"charged {order}"


if __name__ == "__main__":
    print(sorted(app.tasks), flush=True)
    print(app.worker(threads=2).run().done)
"""


def test_a_module_that_is_its_own_worker(stage: Stage) -> None:
    package = stage.place / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(MODULE)
    stage.env["TENURE_BROKER"] = stage.url
    adds = "from shop.jobs import charge\nfor order in range(5): charge.delay(order)\n"
    add = [sys.executable, "-c", adds]
    assert stage.start(add, stage.place / "add.log").wait() == 0
    alone = stage.start([sys.executable, "-m", "shop.jobs"], stage.place / "alone.log")
    stage.wait_done(5)
    assert alone.stop() == 0
    tasks, begun, counted, done = alone.output.splitlines()
    assert (tasks, done) == ("['shop.jobs.charge']", "5")
    assert begun.endswith(": 1 process of 2 slots, queues default, tasks shop.jobs.charge")
    assert counted.startswith("counts: done=5 ")
    assert stage.start(add, stage.place / "add.log").wait() == 0
    stage.start_worker("command", "--processes", "1", app="shop.jobs")
    stage.wait_done(10)
    stage.check(jobs.app.counts._replace(added=10))


LOGGING = """
import logging.config

from tenure import App

app = App("shop")
logging.config.dictConfig({"version": 1, "root": {"level": "ERROR"}})


@app.task
def charge(order: int) -> None: ...
"""


def test_an_app_that_configures_logging_does_not_silence_its_worker(stage: Stage) -> None:
    (stage.place / "shop.py").write_text(LOGGING)
    stage.env["TENURE_BROKER"] = stage.url
    worker = stage.start_worker("w", "--processes", "1", "--queues", "default,defualt", app="shop")
    add = [sys.executable, "-c", "from shop import charge; charge.delay(1)"]
    assert stage.start(add, stage.place / "add.log").wait() == 0
    wait_for(lambda: " INFO " in worker.output and "done shop.charge" in worker.output, 10, "the job's line in the log")
    assert worker.output.count("no task's own: defualt") == 1
    stage.check(jobs.app.counts._replace(added=1))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_an_idle_worker_is_quiet_and_small(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "2")
    jobs.work.delay(1)
    stage.wait_done(1)
    wait_for(lambda: stage.ask("queues")[0]["waiting"] == 2, 5, "both processes wait for jobs")
    pids = (worker.pid, *worker.children, stage.server.pid)
    before = [_cpu_seconds(pid) for pid in pids]
    time.sleep(3.0)
    used = [after - start for start, after in zip(before, map(_cpu_seconds, pids), strict=True)]
    sizes = [_resident_mib(pid) for pid in pids]
    print("CPU seconds in 3 s:", used, "MiB:", sizes)
    assert max(used) < 0.09
    assert max(sizes) < 60
    stage.check(jobs.app.counts)


def test_counts_on_demand_and_tables(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "1")
    for number in range(3):
        jobs.work.delay(number)
    stage.wait_done(3)
    worker.signal(signal.SIGUSR1)
    wait_for(lambda: "counts: done=3 " in worker.output, 5, "the counts are printed")
    broker = ("--broker", stage.url)
    table = stage.run("record", "--verify", *broker).stdout
    assert "the record is balanced" in table
    assert "verified" in table
    assert stage.run("queues", *broker).stdout.split()[:2] == ["queue", "ready"]
    record = stage.ask("record")
    assert set(record) >= {"queues", "workers", "totals", "overlaps", "balanced"}
    stage.check(jobs.app.counts)


def test_a_closed_pipe_is_no_error(stage: Stage) -> None:
    command = f"{TENURE} record --broker {stage.url} | head -n 1 >/dev/null"
    ended = stage.start(["bash", "-c", command], stage.place / "pipe.log")
    assert ended.wait() == 0
    assert ended.output == ""
