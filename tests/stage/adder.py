"""A process that adds jobs from several threads: `python -m tests.stage.adder THREADS SECONDS`.

It prints what it counted, and the longest time that one call took.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from tests.stage.apps import jobs


class Adder:
    """One thread's adds, one behind the other."""

    def __init__(self, seconds: float) -> None:
        self.worst = 0.0
        self.failed: list[str] = []
        self._end = time.monotonic() + seconds
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while (began_at := time.monotonic()) < self._end:
            try:
                jobs.work.delay(number)
            except Exception as error:  # noqa: BLE001  whatever it is, the test that started this is told
                self.failed.append(repr(error))
                return
            self.worst = max(self.worst, time.monotonic() - began_at)
            number += 1

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()


def main(threads: int, seconds: float) -> None:
    """Add from so many threads for so long."""
    adders = [Adder(seconds) for _ in range(threads)]
    for adder in adders:
        adder.join()
    failed = [text for adder in adders for text in adder.failed]
    print(json.dumps([jobs.app.counts, max(adder.worst for adder in adders), failed]))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
