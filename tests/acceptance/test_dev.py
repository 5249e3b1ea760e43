"""`tenure dev`: one command for a server and a worker, which follows the code and keeps the jobs."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tenure import App
from tenure.faults import process
from tenure.inspection import inspect
from tests.stage.harness import TENURE, Running, Stage, wait_for

CODE = """
import time
from pathlib import Path
from tenure import App

app = App("shop")


@app.task
def say(seconds: float = 0.0) -> str:
    Path("began").touch()
    time.sleep(seconds)
    return {words!r}
"""

app = App("producer")


@app.task(name="shop.say")
def say(seconds: float = 0.0) -> str:
    raise NotImplementedError


def write(bare: Stage, words: str) -> None:
    (bare.place / "shop.py").write_text(CODE.format(words=words), encoding="utf-8")


def start(bare: Stage, name: str, *options: str) -> Running:
    """Start `tenure dev`, and have this process add jobs to it."""
    dev = bare.start([str(TENURE), "dev", "-A", "shop", "--listen", "127.0.0.1:0", *options], bare.place / name)
    found = wait_for(lambda: re.search(r"^tenure server on (\S+),", dev.output, re.MULTILINE), 15, "a server")
    assert found is not None  # or wait_for had failed
    bare.use(app, found[1])
    return dev


def gone(pids: list[int]) -> bool:
    return all(process.state(pid) in (None, "Z") for pid in pids)


def test_it_follows_the_code_and_keeps_the_jobs(bare: Stage) -> None:
    write(bare, "old")
    dev = start(bare, "first.log")
    told = f"for this server set TENURE_BROKER={app.broker_url}"
    wait_for(lambda: told in dev.output, 5, "the way to this server is told")
    assert say.delay().result(timeout=15) == "old"

    (bare.place / "shop.py").write_text("def half(\n", encoding="utf-8")
    wait_for(lambda: "it starts again when a file has changed" in dev.output, 15, "the worker cannot start")
    assert "shop.py has changed" in dev.output
    assert "SyntaxError" in dev.output
    waiting = say.delay()
    write(bare, "new and longer")
    assert waiting.result(timeout=15) == "new and longer"

    (worker,) = [pid for pid in process.children(dev.pid) if process.children(pid)]
    begun = dev.output.count("tasks shop.say")
    process.kill(worker)
    wait_for(lambda: dev.output.count("tasks shop.say") > begun, 15, "a new worker takes jobs")
    assert "the worker was ended from outside (-9); it starts again in a second" in dev.output
    assert say.delay().result(timeout=15) == "new and longer"

    began = bare.place / "began"
    began.unlink()
    job = say.delay(0.5)
    wait_for(began.exists, 10, "the job runs")
    tree = process.children(dev.pid)
    dev.signal_group(signal.SIGINT)  # as a terminal does
    assert dev.wait() == 0
    assert gone(tree)
    assert "Traceback" not in dev.output.partition("SyntaxError")[2]

    start(bare, "second.log", "--no-reload")
    assert job.result(timeout=5) == "new and longer"
    assert {file.name for file in (bare.place / ".tenure").iterdir()} >= {".gitignore", "tenure.db"}


def test_what_does_not_finish_in_time_is_given_back(bare: Stage) -> None:
    write(bare, "old")
    dev = start(bare, "dev.log")
    began = bare.place / "began"
    job = say.delay(60)
    wait_for(began.exists, 15, "the job runs")
    began.unlink()
    write(bare, "new and longer")
    wait_for(began.exists, 15, "it runs again, by new code")
    first, second = handouts(job.id)
    assert first["ended"] == "left"
    assert second["ended"] == "running"
    assert first["worker"] != second["worker"]

    tree = process.children(dev.pid)
    tree += [pid for child in tree for pid in process.children(child)]
    assert len(tree) == 3  # a server, a supervisor, a worker process
    process.kill(dev.pid)
    wait_for(lambda: gone(tree), 15, "server and worker have ended by themselves")
    start(bare, "after.log", "--no-reload")
    assert handouts(job.id)[1]["ended"] == "left"  # the server outlived the worker, and heard of it


def handouts(id: str) -> list[dict[str, Any]]:
    with inspect(app.broker_url) as inspection:
        found: list[dict[str, Any]] = inspection.job(id)["handouts"]
    return found


@pytest.mark.parametrize("broken", ["the app", "the address"])
def test_it_ends_with_one_when_there_is_nothing_to_run(broken: str, bare: Stage) -> None:
    if broken == "the app":
        (bare.place / "shop.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
        dev = start(bare, "dev.log", "--no-reload")
        assert dev.wait() == 1
        assert "No module named 'nothing_of_this_name'" in dev.output
        assert "tenure dev: the worker has ended (1)" in dev.output
    else:
        bare.start_server()
        taken = bare.url.removeprefix("tenure://")
        done = bare.run("dev", "-A", "shop", "--listen", taken, code=1)
        assert "Another server may be using it" in done.stderr
        assert "tenure dev: the server has ended (1)" in done.stdout
