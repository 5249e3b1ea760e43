"""What redis-py makes of a Redis without Tenure: `python -m tests.benchmarks.redis_raw URL`.

It prints `ready`; then it reads orders, one a line, and answers each with a line: `evalsha N` and `pipelined N` print
calls a second of a script that does nothing, `pushpop N` the seconds from each push to the return of a pop that waits
for it in another process; `memory 1` the bytes that Redis uses.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

import redis

SCRIPT = "return 1"
KEY = "tenure:{default}"
ARGS = ("0" * 32, "h" * 40, "b" * 70)
"""As long as those of one `.delay(int)`."""
PIPELINE = 100
LINE = "bench:line"
REST = 0.01
"""Seconds, on average, before each push."""


def main(url: str) -> None:
    """Do what is asked until there is no more input."""
    client: Any = redis.Redis.from_url(url)
    sha = client.script_load(SCRIPT)
    print("ready", flush=True)
    for line in sys.stdin:
        order, count = line.split()
        if order == "evalsha":
            print(_evalsha(client, sha, int(count)), flush=True)
        elif order == "pipelined":
            print(_pipelined(client, sha, int(count)), flush=True)
        elif order == "memory":
            print(client.info("memory")["used_memory"], flush=True)
        else:
            print(*_push_and_pop(client, url, int(count)), flush=True)


def pop(url: str, count: int) -> None:
    """The other end of `pushpop`: pop so often, and print when each came."""
    client: Any = redis.Redis.from_url(url)
    client.ping()
    print("ready", flush=True)
    for _ in range(count):
        client.blpop([LINE], 30)
        print(time.monotonic(), flush=True)


def _evalsha(client: Any, sha: str, count: int) -> float:
    began_at = time.perf_counter()
    for _ in range(count):
        client.evalsha(sha, 1, KEY, *ARGS)
    return count / (time.perf_counter() - began_at)


def _pipelined(client: Any, sha: str, count: int) -> float:
    began_at = time.perf_counter()
    for _ in range(count // PIPELINE):
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(PIPELINE):
                pipeline.evalsha(sha, 1, KEY, *ARGS)
            pipeline.execute()
    return count // PIPELINE * PIPELINE / (time.perf_counter() - began_at)


def _push_and_pop(client: Any, url: str, count: int) -> list[float]:
    command = [sys.executable, "-m", "tests.benchmarks.redis_raw", url, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        seconds = []
        for _ in range(count):
            time.sleep(REST * random.uniform(0.5, 1.5))
            pushed_at = time.monotonic()
            client.rpush(LINE, "x" * 150)
            seconds.append(float(other.stdout.readline()) - pushed_at)
    return seconds


if __name__ == "__main__":
    if len(sys.argv) > 2:
        pop(sys.argv[1], int(sys.argv[2]))
    else:
        main(sys.argv[1])
