"""A connection to one Redis server, logged in, that knows which server and which run of it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hiredis import ReplyError

from tenure.brokers.redis.address import Address, Place
from tenure.brokers.redis.refusals import meaning
from tenure.brokers.redis.resp import RespSocket, pack
from tenure.clock import boot
from tenure.errors import ConfigError

OLDEST = (6, 2)
"""The first version of Redis that has all that the scripts use; Valkey began later."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself.

    `run_id` is another one after each start.  `mode` is standalone, cluster or sentinel, `role` master or slave.
    """

    run_id: str
    version: str
    mode: str
    role: str


class Node(RespSocket):
    """A connection on which the server has said who it is.

    `scripts` are the digests of those that it was sent; `has_written` is the link's note that something was written.
    """

    def __init__(self, place: Place, address: Address, name: str, limit: float) -> None:
        """Connect and log in within `limit` seconds; raises ConnectionError, and ConfigError for good."""
        started = boot()
        super().__init__(place, address.tls, limit)
        self.address = place
        self.scripts: set[str] = set()
        self.has_written = False
        try:
            self.server = self._log_in(address, name, max(0.001, limit - (boot() - started)))
        except BaseException:
            self.close()
            raise

    def _log_in(self, address: Address, name: str, limit: float) -> Server:
        commands = [
            *login_commands(address.login.username, address.login.password),
            *([pack("SELECT", address.db)] if address.db else []),
            pack("CLIENT", "SETNAME", name),
            pack("INFO", "server"),
            pack("INFO", "replication"),
        ]
        replies = self.exchange(b"".join(commands), len(commands), limit)
        *asked, _, server, replication = replies
        # What became of the name is of no interest: not every managed server lets its clients have one.
        for reply in (*asked, server, replication):
            if isinstance(reply, ReplyError):
                raise _refused(reply, self.address, address)
        return _server(fields(server), fields(replication))


def login_commands(username: str, password: str) -> list[bytes]:
    """Return what says who this is, nothing where no password is known."""
    if not password:
        return []
    return [pack("AUTH", username, password) if username else pack("AUTH", password)]


def _refused(reply: ReplyError, place: Place, address: Address) -> Exception:
    """Say what to change in the URL."""
    text = str(reply)
    if "DB index" in text:
        return ConfigError(f"the server at {place} has no database {address.db}; see `databases` in its configuration")
    if "without any password" in text or "no password is set" in text:
        return ConfigError(f"the server at {place} wants no password, and the broker URL has one; leave it out")
    if text.startswith("ERR invalid"):
        return ConfigError(f"the server at {place} does not know this password ({text})")
    error = meaning(reply, place)
    return error if isinstance(error, ConnectionError | ConfigError) else ConfigError(f"{place}: {error}")


def fields(info: Any) -> dict[str, str]:
    """Return what INFO says; nothing for a refusal."""
    if isinstance(info, ReplyError):
        return {}
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _server(about: dict[str, str], replication: dict[str, str]) -> Server:
    return Server(
        about.get("run_id", ""),
        about.get("redis_version", ""),
        about.get("redis_mode") or about.get("server_mode", "standalone"),
        replication.get("role", "master"),
    )
