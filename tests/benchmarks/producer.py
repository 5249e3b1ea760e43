"""A program that adds jobs: `python -m tests.benchmarks.producer URL`.

It prints `ready`; then, for each number that it reads, it adds so many jobs one by one and prints when it began and
ended, in seconds of the boot clock, which all processes share.
"""

from __future__ import annotations

import sys

from tenure.clock import boot
from tests.benchmarks.tasks import app, noop


def main(url: str) -> None:
    """Do what is asked until there is no more input."""
    app.use_broker(url)
    noop.delay(0)
    print("ready", flush=True)
    for line in sys.stdin:
        began_at = boot()
        for number in range(int(line)):
            noop.delay(number)
        print(began_at, boot(), flush=True)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
