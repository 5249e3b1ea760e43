"""Ctrl+C and SIGTERM while a command is still being imported, which takes a good part of a second.

`tenure` imports this module before all others.  Where the process is one of the commands that run until they are told
to end, a signal ends it at once and without a traceback, exit code 0: it has taken nothing yet.  The command puts its
own handlers in the place of these as soon as it has something to end.  In any other program nothing is changed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_RUN_UNTIL_TOLD = ("server", "worker", "dev", "chaos")


def command_of(argv: Sequence[str], orig_argv: Sequence[str]) -> str | None:
    """Return the command of `tenure` that a process is, by the words that its interpreter was given; None for others.

    `argv` alone does not tell: it begins with "-m" while a module's package is imported, whichever that is.
    """
    program = os.path.basename(orig_argv[-len(argv)]) if 0 < len(argv) < len(orig_argv) else ""  # noqa: PTH119  (light)
    place = {"tenure": 1, "tenure.cli.tether": 2}.get(program, len(argv))
    return argv[place] if place < len(argv) else None


def _end(number: int, frame: object) -> None:
    # Not by an exception: an import under way, or a callback, might swallow it.
    os._exit(0)


if command_of(sys.argv, sys.orig_argv) in _RUN_UNTIL_TOLD:
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, _end)
