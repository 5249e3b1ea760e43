"""celery on Redis: late ack, results off, and what its guide on optimising says for many short tasks."""

from __future__ import annotations

import os

from celery import Celery

from tests.benchmarks.peers.programs import body

app = Celery("bench", broker=os.environ.get(body.BROKER))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
_noop = app.task(body.noop, name="noop")
_tell = app.task(body.tell, name="tell")
send_tell = _tell.delay


def send(count: int) -> None:
    """Add so many no-op jobs, one by one."""
    for number in range(count):
        _noop.delay(number)
