"""An app whose import starts a thread that holds a lock for ever, and opens connections of its own to the broker."""

from __future__ import annotations

import os
import threading

from tenure import App

app = App("threaded")
lock = threading.Lock()
_held = threading.Event()


def _hold() -> None:
    with lock:
        _held.set()
        threading.Event().wait()


@app.task
def quick(number: int) -> int:
    """Return the process that ran it."""
    return os.getpid()


@app.task
def adds(number: int) -> None:
    """Add another job from inside a job, over this process's own connections."""
    quick.delay(number)


threading.Thread(target=_hold, daemon=True).start()
_held.wait()
