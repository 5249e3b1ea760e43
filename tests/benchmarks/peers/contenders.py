"""Who is compared, and with which settings: one worker process, ten jobs at a time, results off."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.benchmarks.processes import SLOTS

PROGRAMS = "tests.benchmarks.peers.programs"

Kind = Literal["tenure normal", "tenure full", "redis", "rabbitmq"]


@dataclass(frozen=True)
class Contender:
    """One of them; `worker` is what follows `python -m`, `imports` what a program that adds jobs imports."""

    name: str
    label: str
    module: str
    server: Kind
    worker: tuple[str, ...]
    imports: str
    settings: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether it is Tenure, which has the project's own interpreter."""
        return self.module == "with_tenure"


def _tenure(durability: Literal["normal", "full"], settings: str) -> Contender:
    command = ("tenure", "worker", "-A", f"{PROGRAMS}.with_tenure", "--processes", "1", "--threads", str(SLOTS))
    return Contender(
        f"tenure-{durability}",
        f"Tenure, `{durability}`",
        "with_tenure",
        "tenure normal" if durability == "normal" else "tenure full",
        (*command, "--log-level", "warning"),
        "import tenure",
        settings,
    )


_DRAMATIQ = ("dramatiq", "--processes", "1", "--threads", str(SLOTS), f"{PROGRAMS}.with_dramatiq")
_CELERY = ("celery", "-A", f"{PROGRAMS}.with_celery", "worker", "--pool", "threads", "--concurrency", str(SLOTS))
_TASKIQ = ("taskiq", "worker", f"{PROGRAMS}.with_taskiq:broker", "--workers", "1", "--max-async-tasks", str(SLOTS))
_HUEY = ("huey.bin.huey_consumer", f"{PROGRAMS}.with_huey.huey", "--workers", str(SLOTS), "--worker-type", "thread")

_TENURE_REDIS = Contender(
    "tenure-redis",
    "Tenure, Redis",
    "with_tenure",
    "redis",
    _tenure("normal", "").worker,
    "import tenure, tenure.brokers.redis",
    "late ack",
)

CONTENDERS = (
    _tenure("normal", "late ack; a killed server loses nothing"),
    _tenure("full", "late ack; on disk before each answer, as shipped"),
    _TENURE_REDIS,
    Contender(
        "huey",
        "huey, Redis",
        "with_huey",
        "redis",
        (*_HUEY, "--no-periodic", "--quiet"),
        "from huey import RedisHuey",
        "no late ack: a plain blocking pop, a crash loses the job; `--no-periodic`",
    ),
    Contender(
        "dramatiq-redis",
        "dramatiq, Redis",
        "with_dramatiq",
        "redis",
        _DRAMATIQ,
        "import dramatiq, dramatiq.brokers.redis",
        "late ack, default middleware",
    ),
    Contender(
        "dramatiq-rabbitmq",
        "dramatiq, RabbitMQ",
        "with_dramatiq",
        "rabbitmq",
        _DRAMATIQ,
        "import dramatiq, dramatiq.brokers.rabbitmq",
        "late ack, default middleware, no publisher confirms, prefetch 500",
        {"dramatiq_queue_prefetch": "500"},
    ),
    Contender(
        "taskiq",
        "taskiq, Redis stream",
        "with_taskiq",
        "redis",
        (*_TASKIQ, "--ack-type", "when_executed", "--log-level", "ERROR"),
        "import taskiq_redis",
        "late ack (`when_executed`), tasks are coroutines, ten at a time",
    ),
    Contender(
        "celery",
        "celery, Redis",
        "with_celery",
        "redis",
        (*_CELERY, "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"),
        "from celery import Celery; Celery",
        "`acks_late`, threads, prefetch multiplier 64, no gossip, mingle or heartbeat",
    ),
)
PROGRAM_OF: dict[Kind, str] = {"redis": "redis-server", "rabbitmq": "rabbitmq-server"}


def here() -> list[Contender]:
    """Return those whose server is installed on this machine."""
    return [one for one in CONTENDERS if shutil.which(PROGRAM_OF.get(one.server, "env"))]
