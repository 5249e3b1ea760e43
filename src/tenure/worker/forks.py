"""Lets what a task forks end at SIGTERM, as `multiprocessing.Pool` counts on when it ends its processes.

A fork inherits the handler by which this process drains, and the socket that wakes it.  And a signal that reaches the
fork before the interpreter has looked after itself there is dropped.  So SIGTERM is held back while a thread forks;
the fork ends at it once it has the system's own handler again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Forks:
    """What is done around each fork of this process while its own handler of SIGTERM is there."""

    def __init__(self) -> None:
        self._handlers = 0
        self._forking = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._hold_back, after_in_parent=self._let_through, after_in_child=self._end_at_sigterm
            )

    @contextmanager
    def end_at_sigterm(self) -> Iterator[None]:
        """See to the forks of all threads."""
        self._handlers += 1
        try:
            yield
        finally:
            self._handlers -= 1

    def _hold_back(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _let_through(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _end_at_sigterm(self) -> None:
        if self._handlers:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._let_through()


end_at_sigterm = _Forks().end_at_sigterm
