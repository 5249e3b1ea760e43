"""The address of a server: had before anything else is made, so that a start that fails leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from tenure.errors import TenureError
from tenure.server.address import Address

BACKLOG = 1_024


class ListenError(TenureError):
    """The address cannot be listened on."""


async def bind(address: Address, line: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    """Have an address for this process alone; no connection is taken before `start_serving` of what is returned.

    `line` makes the protocol of each connection.  Raises ListenError.
    """
    loop = asyncio.get_running_loop()
    try:
        if address.path:
            return await loop.create_unix_server(
                line, sock=_unix_socket(address.path), backlog=BACKLOG, start_serving=False
            )
        return await loop.create_server(line, address.host, address.port, backlog=BACKLOG, start_serving=False)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        taken = "Another server may be using it: stop that one, or c" if error.errno == errno.EADDRINUSE else "C"
        raise ListenError(
            f"cannot listen on {address.url()}: {reason}. {taken}hoose another address with --listen"
        ) from None


def let_go(listener: asyncio.Server, address: Address) -> None:
    """Give an address back on which nobody was served."""
    listener.close()
    if address.path:
        Path(address.path).unlink(missing_ok=True)


def _unix_socket(path: str) -> socket.socket:
    _clear_stale_socket(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)  # at once: another server that starts meanwhile has to find somebody there
    except OSError:
        listener.close()
        raise
    return listener


def _clear_stale_socket(path: str) -> None:
    """Remove the socket file of a server that is gone; raises ListenError when somebody answers on it."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            raise ListenError(f"cannot listen on unix:{path}: there is a file of that name; choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            Path(path).unlink()
            return
    raise ListenError(f"cannot listen on unix:{path}: another server is using it; stop it, or choose another path")
