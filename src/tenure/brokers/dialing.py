"""Opening a socket to a server within a limit, whatever the name's servers and the addresses behind it do."""

from __future__ import annotations

import codecs
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from tenure.clock import boot

# A host's name is encoded with it, which would import it first.  A child that was forked while another thread imports
# waits for ever for that import's lock, so it is done here and now.
codecs.lookup("idna")

Found = list[tuple[Any, ...]]
"""What `socket.getaddrinfo` returns."""


def dial(host: str, port: int, limit: float) -> socket.socket:
    """Return a connected socket within `limit` seconds in all, of whichever of the host's addresses answers.

    An address that is silent costs its share of the time only, so that the next one has some.  The address that
    answered last is tried first.  Raises OSError.
    """
    end = boot() + limit
    key = host, port
    found = _addresses(host, port, limit)
    found.sort(key=lambda one: one[4] != _answered.get(key))
    while True:
        left = end - boot()
        one, *found = found
        try:
            connected = _connected(one, max(0.001, left / (1 + len(found))))
        except OSError:
            if not found or boot() >= end:
                raise
        else:
            _answered[key] = one[4]
            return connected


def _connected(one: tuple[Any, ...], limit: float) -> socket.socket:
    family, kind, protocol, _, address = one
    new = socket.socket(family, kind, protocol)
    try:
        new.settimeout(limit)
        new.connect(address)
    except BaseException:
        new.close()
        raise
    return new


class _Lookup:
    """A name that is being looked up, for all who want to know it meanwhile."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: Found = []
        self.error: OSError | None = None

    def run(self, host: str, port: int, over: Callable[[], object]) -> None:
        """Ask the system and call `over`, before anybody is told."""
        try:
            self.found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self.error = error
        finally:
            over()
            self.done.set()


class _Names:
    """The names that are being looked up, each by a thread of its own: no limit bounds how long the system takes."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Begin anew: the threads are the parent's, and the lock may have been held."""
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, int], _Lookup] = {}

    def look_up(self, host: str, port: int) -> _Lookup:
        """Return the lookup of a name, which is begun where nobody waits for it already."""
        key = host, port
        with self._lock:
            lookup = self._asked.get(key)
            if lookup is not None:
                return lookup
            lookup = self._asked[key] = _Lookup()
        arguments = host, port, lambda: self._asked.pop(key, None)
        try:
            threading.Thread(target=lookup.run, args=arguments, name="tenure-lookup", daemon=True).start()
        except RuntimeError:  # the interpreter is about to end and starts none any more
            lookup.run(*arguments)
        return lookup


_names = _Names()
_answered: dict[tuple[str, int], Any] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_names.after_fork)


def _addresses(host: str, port: int, limit: float) -> Found:
    """Return the host's addresses; raises OSError when its name is not known within `limit` seconds."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        lookup = _names.look_up(host, port)
    if not lookup.done.wait(limit):
        raise TimeoutError(f"the address of {host} was not found within {limit:.3g} s")
    if lookup.error is not None:
        raise OSError(*lookup.error.args)
    return list(lookup.found)
