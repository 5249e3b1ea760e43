"""An app whose jobs end the process that runs them, each in its own way."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress

from tenure import App
from tests.stage.marks import marked

app = App("poisonous")


@app.task(max_losses=3)
def die(how: str) -> None:
    """End this process: by a signal, by an exit, or by a fault in native code."""
    with marked():
        pass
    if how == "exit":
        os._exit(3)
    if how == "fault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60.0)  # the signal may take a moment


@app.task(max_losses=2, visibility_timeout=1)
def die_with_all() -> None:
    """End the whole worker."""
    with marked():
        pass
    os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)
    time.sleep(60.0)


@app.task
def good(number: int) -> int:
    """Give the number back."""
    with marked():
        return number


@app.task(max_attempts=1)
def unreadable(text: str) -> None:
    """Raise an error whose text is hard to store, beside what cannot be an argument."""
    with marked():
        pass
    with suppress(ValueError):
        raise ValueError(text)
    raise RuntimeError(f"{text} \N{PILE OF POO} \0 \udc80 \x1b[31m" + b"\xff\xfe".decode("utf-8", "surrogateescape"))
