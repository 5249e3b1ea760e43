"""What a worker is started with, as frozen data."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace

DEFAULT_THREADS = 8
DEFAULT_ASYNC_SLOTS = 100
DEFAULT_GRACE = 25.0
BROKER = "TENURE_WORKER_BROKER"
"""The environment variable by which a supervisor tells its children the broker."""


def default_processes() -> int:
    """Return how many processes a worker has when nobody says: one a CPU, at most 4."""
    return min(4, os.cpu_count() or 1)


def default_name() -> str:
    """Return the label of a worker in the record when nobody gives one."""
    return f"{socket.gethostname()}-{os.getpid()}"


def new_session() -> str:
    """Return 128 random bits as 32 hexadecimal digits; every start of a process has its own."""
    return os.urandom(16).hex()


def start_line(name: str, processes: int, threads: int, queues: Sequence[str], tasks: Sequence[str]) -> str:
    """Return what a worker says when it begins."""
    many = "1 process" if processes == 1 else f"{processes} processes"
    return f"worker {name}: {many} of {threads} slots, queues {', '.join(queues)}, tasks {', '.join(tasks)}"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What `tenure worker` was asked for; `grace` and `visibility_timeout` in seconds.

    `app` is `module` or `module:name`.  What is None is the app's or the machine's own.  `counts_file` gets the
    counts as JSON at the end and on SIGUSR1.  `max_jobs` and `max_memory` (bytes) are one process's, which is replaced
    then.  `health` is HOST:PORT to answer at.  `isolate`: each process runs one job at a time.
    """

    app: str
    broker: str | None = None
    processes: int = 1
    threads: int = DEFAULT_THREADS
    async_slots: int = DEFAULT_ASYNC_SLOTS
    queues: tuple[str, ...] | None = None
    name: str | None = None
    grace: float = DEFAULT_GRACE
    log_level: str = "info"
    log_format: str = "text"
    counts_file: str | None = None
    visibility_timeout: float | None = None
    max_jobs: int | None = None
    max_memory: int | None = None
    health: str | None = None
    isolate: bool = False


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What a supervisor tells a child process: the worker's options, its own session, and its file descriptors.

    `started_at` is by the boot clock.
    """

    worker: WorkerOptions
    session: str
    parent: int
    table_fd: int
    commands_fd: int
    reports_fd: int
    started_at: float = 0.0

    def to_json(self) -> str:
        """Return the options as one argument of a command line, which everybody may read: so without the broker."""
        return json.dumps(asdict(replace(self, worker=replace(self.worker, broker=None))))

    def to_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with what is to go with `to_json`, the broker, whose URL may have a password in it."""
        broker = self.worker.broker
        return {**environment, **({} if broker is None else {BROKER: broker})}

    @classmethod
    def read(cls, text: str, environment: MutableMapping[str, str]) -> ChildOptions:
        """Read what `to_json` and `to_environment` wrote; programs that tasks start do not inherit it."""
        fields = json.loads(text)
        worker = fields.pop("worker") | {"broker": environment.pop(BROKER, None)}
        queues = worker.pop("queues")
        return cls(WorkerOptions(queues=None if queues is None else tuple(queues), **worker), **fields)
