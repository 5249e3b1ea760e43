"""huey on Redis, as its guide has it: results off, blocking pops.  It has no late ack: a crash loses the job."""

from __future__ import annotations

import os

from huey import RedisHuey

from tests.benchmarks.peers.programs import body

huey = RedisHuey("bench", url=os.environ.get(body.BROKER), results=False)
_noop = huey.task(name="noop")(body.noop)
_tell = huey.task(name="tell")(body.tell)
send_tell = _tell


def send(count: int) -> None:
    """Add so many no-op jobs, one by one."""
    for number in range(count):
        _noop(number)
