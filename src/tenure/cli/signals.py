"""Ctrl+C and SIGTERM for commands whose main thread waits on something else."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

_ENDS = (signal.SIGINT, signal.SIGTERM)


def no_more_ends() -> None:
    """Let further Ctrl+C and SIGTERM change nothing: all is done, and the interpreter only takes itself down."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)


def on_end(act: Callable[[], object]) -> None:
    """Call `act` in a thread of its own at every Ctrl+C and SIGTERM from now on; in the main thread only.

    The interpreter writes each signal into a socket itself.  A handler would not do: it waits until the main thread
    runs Python code, and a signal that comes right before that thread begins to wait on a lock is not seen.
    """
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    for number in _ENDS:
        signal.signal(number, lambda *_: None)

    def listen() -> None:
        with tell:  # held open for as long as somebody listens
            while numbers := told.recv(64):
                for number in numbers:
                    if number in _ENDS:
                        act()

    threading.Thread(target=listen, name="tenure-signals", daemon=True).start()
