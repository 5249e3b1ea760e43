"""The server's write-ahead log while producers add as fast as they can."""

from __future__ import annotations

import threading
import time

from tests.stage.apps import jobs
from tests.stage.harness import Stage

MOST = 40 * 1024 * 1024
"""Bytes that the log never grows above in this test; a little over what `checkpoints.LIMIT` and one turn come to."""


def test_the_log_stays_bounded_and_is_gone_after_a_stop(stage: Stage) -> None:
    stage.server.stop(5)
    stage.start_server("127.0.0.1:0", "--durability", "normal")
    stage.use(jobs.app)
    until = time.monotonic() + 5.0
    added: list[int] = []

    def folded() -> bool:
        return (stage.place / "jobs.db").stat().st_size > 2_000_000

    def produce() -> None:
        # A busy machine may take longer to add so much that the log has to be folded.
        while (now := time.monotonic()) < until or (now < until + 20.0 and not folded()):
            added.append(len(jobs.app.add_many([jobs.work.s(n) for n in range(200)])))

    producers = [threading.Thread(target=produce) for _ in range(3)]
    for producer in producers:
        producer.start()
    log = stage.place / "jobs.db-wal"
    largest = 0
    while any(producer.is_alive() for producer in producers):
        largest = max(largest, log.stat().st_size)
        time.sleep(0.02)
    assert folded(), "all was folded only at the end"
    assert 0 < largest < MOST
    record = stage.ask("record")
    assert record["totals"]["added"] == sum(added)
    assert stage.server.stop(5) == 0
    assert "Traceback" not in stage.server.output
    assert not log.exists()
