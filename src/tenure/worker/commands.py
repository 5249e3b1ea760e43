"""What a process's main thread waits for: commands from other threads and from signals, without losing one."""

from __future__ import annotations

import signal
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from tenure.worker import forks

ONE_SIGNAL = 0.03
"""Seconds within which a second signal to leave is a copy of the first: GNU timeout sends one to the process and one
to its group, and a wrapper passes on what the terminal has sent to both.  Nobody presses Ctrl+C twice as fast."""


class Commands:
    """A queue of words that may be filled from any thread and from a signal handler.

    It waits on a socket, into which the interpreter itself writes at every signal.  A wait on a lock would not do: a
    signal that comes right before the wait begins does not end it, and SIGTERM would be lost.
    """

    def __init__(self) -> None:
        self._words: deque[str] = deque()
        self._actions: dict[str, Callable[..., object]] = {}
        self._out, self._in = socket.socketpair()
        self._in.setblocking(False)
        weakref.finalize(self, _close, self._out, self._in)

    def act_on(self, word: str, action: Callable[..., object]) -> None:
        """Have a word acted on in the thread in which it comes, and not waited for; the action is short.

        It is given what the word is about.
        """
        self._actions[word] = action

    def put(self, word: str, *about: str) -> None:
        """Add a word, which may be about something."""
        if word in self._actions:
            self._actions[word](*about)
            return
        self._words.append(word)
        with suppress(BlockingIOError):  # a socket that is full wakes the reader too
            self._in.send(b"\0")

    def get(self, timeout: float | None = None) -> str | None:
        """Wait for the next word, up to `timeout` seconds; None when none came."""
        while not self._words:
            self._out.settimeout(timeout)
            try:
                self._out.recv(4096)
            except (TimeoutError, BlockingIOError):
                return None
        return self._words.popleft()

    @contextmanager
    def from_signals(self, words: Mapping[signal.Signals, str]) -> Iterator[None]:
        """Turn signals into words (an empty one: none) while in the main thread, and put the old handlers back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old_fd = signal.set_wakeup_fd(self._in.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, self._handler(word)) for number, word in words.items()}
        try:
            with forks.end_at_sigterm():
                yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)

    def _handler(self, word: str) -> Callable[[int, FrameType | None], None]:
        def tell(number: int, frame: FrameType | None) -> None:
            if word:
                self.put(word)

        return tell


def _close(*ends: socket.socket) -> None:
    for end in ends:
        end.close()
