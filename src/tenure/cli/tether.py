"""Runs a command that ends when whoever started it is gone: `python -m tenure.cli.tether FD COMMAND...`.

FD is the reading end of a pipe that the starter holds open, and never writes to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from tenure.cli.main import main


def run(words: list[str]) -> None:
    """Run the command, and tell it to leave when the pipe has ended."""
    fd = int(words[0])
    os.set_inheritable(fd, False)
    threading.Thread(target=_watch, args=(fd,), daemon=True).start()
    main(words[1:])


def _watch(fd: int) -> None:
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run(sys.argv[1:])
