"""Takes and settlements without a worker around them: what the server does for one, and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from tenure.broker import Consumer
from tenure.brokers import connect
from tenure.message import Settlement
from tests.benchmarks.processes import SLOTS

QUEUE = "default"


@contextmanager
def consumer(url: str, queue: str = QUEUE) -> Iterator[Consumer]:
    """A consumer of one queue, as a worker process has it."""
    broker = connect(url)
    taker = broker.consumer([queue], session=secrets.token_hex(16), name="benchmark", visibility_timeout=30.0)
    try:
        yield taker
    finally:
        taker.close()
        broker.close()


def take_rate(taker: Consumer, count: int, batch: int = SLOTS) -> float:
    """Take and settle so many jobs, ten at a time, and return how many a second that were.

    Raises RuntimeError when there are not so many.
    """
    left, began_at = count, perf_counter()
    while left > 0:
        deliveries = taker.take(min(batch, left), 0.0)
        if not deliveries:
            raise RuntimeError(f"the queue ran out of jobs with {left} of {count} still to be taken")
        taker.settle([Settlement(delivery.receipt, "done") for delivery in deliveries])
        left -= len(deliveries)
    return count / (perf_counter() - began_at)
