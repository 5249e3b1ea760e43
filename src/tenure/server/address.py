"""Where a server listens: loopback or a unix socket, and nothing else yet."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tenure.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP host and port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def url(self, port: int | None = None) -> str:
        """The broker URL that leads here; `port` is the one that the system chose for port 0."""
        if self.path:
            return f"tenure+unix://{quote(str(Path(self.path).absolute()))}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tenure://{host}:{self.port if port is None else port}"


def parse_listen(text: str) -> Address:
    """Read `HOST:PORT` or `unix:PATH`; raises ConfigError when it is neither, or open to other machines."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ConfigError("--listen unix: names no path; write it as unix:/run/tenure.sock")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen {text!r} is not HOST:PORT (port 0 to 65535) and not unix:PATH")
    if not _is_loopback(host):
        raise ConfigError(
            f"--listen {text!r} would be open to other machines, and this version has neither passwords nor "
            "encryption; listen on 127.0.0.1 or unix:PATH, and let other machines in through an SSH tunnel"
        )
    return Address(host=host, port=int(port))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
