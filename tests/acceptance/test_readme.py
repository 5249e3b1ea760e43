"""The README's first app, copied out of it and run with its own commands, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def block(name: str) -> str:
    """Return the text of the code block below the comment with this name."""
    found = re.search(rf"<!-- first app: {name} -->\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the README has no block {name!r} any more"
    return found[1]


def commands(name: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block(name).splitlines()]


class Folder:
    """An empty folder in which a shell runs commands as the README has them, with this Python's `bin` activated.

    The one difference: any free port, as other servers may run on this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, command: str) -> Path:
        """Start a command in its own terminal, so to speak; returns the file with what it prints."""
        output = self.path / f"terminal-{len(self._running)}"
        with output.open("wb") as file:
            self._running.append(
                subprocess.Popen(f"exec {command}", shell=True, cwd=self.path, env=self.env, stdout=file, stderr=file)
            )
        return output

    def run(self, command: str) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            command, shell=True, check=False, cwd=self.path, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End everything, the last started first; each has to leave in good order."""
        codes = [_ended(process) for process in reversed(self._running)]
        assert set(codes) <= {0}


def _ended(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.close()


def wait_for(question: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 20
    while not question():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def test_the_first_app_runs_as_written(folder: Folder) -> None:
    (folder.path / "shop.py").write_text(block("shop.py"), encoding="utf-8")
    server, worker, call = commands("commands")
    announced = folder.start(f"{server} --listen 127.0.0.1:0")
    wait_for(lambda: "\n" in announced.read_text(), "the server listens")
    found = re.search(r"tenure server on (\S+),", announced.read_text())
    assert found is not None
    folder.env["TENURE_BROKER"] = found[1]

    log = folder.start(worker)
    first, again = folder.run(call), folder.run(call)
    assert re.fullmatch(r"job [0-9a-f]{32}, created: True\n", first)
    assert again == first.replace("True", "False")
    charged = "order 42: charged 999 cents, attempt 1\n"
    wait_for(lambda: charged in log.read_text(), "the order is charged")

    broken = folder.run('python -c "import shop; print(shop.charge.options(max_attempts=1).delay(43, -5).id)"').strip()
    wait_for(lambda: broken in folder.run("tenure dead ls"), "the failing job is dead")
    record, queues, dead = map(folder.run, commands("looks"))
    assert "verified" in record
    assert "default" in queues
    assert "ValueError: cannot charge -5 cents" in dead
    assert "Traceback" in folder.run(f"tenure dead show {broken}")
    assert "ready" in folder.run(f"tenure dead requeue {broken}")
    wait_for(lambda: broken in folder.run("tenure dead ls"), "it is dead again")
    assert "purged" in folder.run(f"tenure dead purge {broken}")
    assert log.read_text().count(charged) == 1
