"""The pages on Redis are right: the tutorial's last one is done as it stands, and the how-to's user can do all."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.inspection import inspect
from tests.acceptance.test_readme import Folder, block, wait_for
from tests.acceptance.test_work import test_keys_and_batches
from tests.stage.apps import jobs
from tests.stage.harness import Stage
from tests.stage.pages import blocks, loaded
from tests.stage.redis_servers import free_port, needed_program
from tests.stage.redis_stage import RedisStage, bare

__all__ = ["bare", "test_keys_and_batches"]

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "move-to-redis.md"
HOWTO = "run-on-redis.md"


def part(name: str) -> str:
    """Return the block of the tutorial's page below the comment with this name."""
    page = TUTORIAL.read_text(encoding="utf-8")
    found = re.search(rf"<!-- redis: {name} -->\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no block {name!r} any more"
    return found[1]


class Terminals(Folder):
    """The same, with programs that are ended before the test is over."""

    def end(self, command: str, number: int = signal.SIGTERM) -> None:
        """Send a signal to the program that was started last with this command, and wait until it has gone."""
        [running] = [one for one in self._running if one.args == f"exec {command}"][-1:]
        running.send_signal(number)
        assert running.wait(15) in (0, -number)
        self._running.remove(running)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Terminals]:
    folder = Terminals(tmp_path)
    yield folder
    folder.close()


def test_the_first_app_moves_by_changing_one_line(folder: Terminals) -> None:
    """On any free port, as other servers may run on this machine."""
    needed_program()
    port = str(free_port())
    shop = block("shop.py")
    (old,) = [line for line in shop.splitlines(keepends=True) if "App(" in line]
    (folder.path / "shop.py").write_text(shop.replace(old, part("line").replace("6379", port)), encoding="utf-8")
    server, worker = (part(name).strip().removeprefix("$ ").replace("6379", port) for name in ("server", "worker"))
    url = f"redis://127.0.0.1:{port}"
    first = folder.start(server)
    wait_for(lambda: b"Ready to accept connections" in first.read_bytes(), "Redis is ready")
    charged = folder.start(worker)
    call, again, export, record = (line.removeprefix("$ ") for line in part("calls").splitlines())
    said, repeated = folder.run(call), folder.run(again)
    assert said.endswith("created: True\n")
    assert repeated == said.replace("True", "False")
    wait_for(lambda: b"order 42: charged 999 cents, attempt 1" in charged.read_bytes(), "the order is charged")
    folder.env["TENURE_BROKER"] = export.rpartition("=")[2].replace("6379", port)
    wait_for(lambda: _done(url) == 1, "it is done")
    assert "agrees" in folder.run(record)
    folder.end(worker)
    add, _ = (line.removeprefix("$ ") for line in part("crash").splitlines())
    id = folder.run(add).strip()
    folder.end(server, signal.SIGKILL)
    assert len(id) == 32
    second = folder.start(server)
    wait_for(lambda: b"Ready to accept connections" in second.read_bytes(), "Redis is ready again")
    charged = folder.start(worker)
    wait_for(lambda: b"order 43: charged 500 cents, attempt 1" in charged.read_bytes(), "the order is charged")
    wait_for(lambda: _done(url) == 2, "both are done")
    folder.end(worker)


def _done(url: str) -> int:
    with inspect(url) as inspection:
        done: int = inspection.record()["totals"]["done"]
    return done


@pytest.fixture
def stage(bare: RedisStage) -> Stage:
    """A Redis that only knows the user of the how-to's page."""
    bare.start_server()
    redis = bare.redis
    assert redis is not None
    (line,) = blocks(HOWTO, "redis")
    assert redis.command(*line.replace("PASSWORD", "hush").split()) == b"OK"
    assert redis.command("ACL", "SETUSER", "default", "nocommands") == b"OK"
    bare.url = bare.url.replace("://", "://tenure:hush@")
    bare.use(jobs.app)
    return bare


def test_the_example_of_the_page_is_an_app_on_redis() -> None:
    app = loaded(HOWTO)["app"]
    assert app.broker.address.kind == "single"


def test_the_user_of_the_page_may_do_what_an_operator_and_a_caller_do(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1")
    assert jobs.work.delay(1).result(timeout=10) == 1
    dead = jobs.broken.delay("no")
    wait_for(lambda: dead.state() == "dead", "it is dead")
    for words in (("dead", "ls"), ("dead", "requeue", dead.id), ("pause", "default"), ("queues",)):
        stage.run(*words, "--broker", stage.url)
    waiting = jobs.work.delay(2)
    assert waiting.cancel() == "cancelled"
    stage.run("resume", "default", "--broker", stage.url)
    wait_for(lambda: dead.state() == "dead", "it is dead again")
    stage.check(jobs.app.counts)
