"""Servers of the contenders' own: on free ports, in a folder of theirs, ended by their process ids."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.peers.contenders import Kind
from tests.benchmarks.processes import Durability, ended, family, server

READY_LIMIT = 60.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Where Debian has the program itself; what is on its PATH changes the user first."""


@contextmanager
def serving(kind: Kind, folder: Path) -> Iterator[str]:
    """Run a server of this kind, with nothing in it, and return its URL."""
    with ExitStack() as stack:
        if kind == "redis":
            yield stack.enter_context(_redis(folder))
        elif kind == "rabbitmq":
            yield stack.enter_context(_rabbitmq(folder))
        else:
            durability: Durability = "normal" if kind == "tenure normal" else "full"
            yield stack.enter_context(server(folder / "jobs.db", durability)).url


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    """Redis as shipped but for its snapshots, which are off, in its favour: it keeps everything in memory."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--appendonly", "no"]
    with _program(["redis-server", *options], folder, {}):
        _until_open(port)
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def _rabbitmq(folder: Path) -> Iterator[str]:
    """RabbitMQ as shipped, without plug-ins; it finds its own node by a port mapper of its own."""
    port, distribution, mapper = free_port(), free_port(), free_port()
    program = str(RABBITMQ) if RABBITMQ.exists() else "rabbitmq-server"
    (folder / "plugins").write_text("[].\n")
    own = {
        "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "HOME": str(folder),
    }
    with (
        _program(["epmd", "-port", str(mapper), "-address", "127.0.0.1"], folder, {}),
        _program([program], folder, own),
    ):
        _until_open(port)
        yield f"amqp://guest:guest@127.0.0.1:{port}"


@contextmanager
def _program(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a program, what it says into a file; all that came from it ends with it."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is not installed")
    with (folder / "said").open("a") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=said, text=True, env=os.environ | environment
        )
    with ended(process):
        try:
            yield
        finally:
            for pid in reversed(family(process.pid)[1:]):
                os.kill(pid, 15)


def free_port() -> int:
    """Return a port that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _until_open(port: int) -> None:
    give_up_at = time.monotonic() + READY_LIMIT
    while time.monotonic() < give_up_at:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {READY_LIMIT:.0f} s")
