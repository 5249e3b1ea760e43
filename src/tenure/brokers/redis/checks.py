"""What a Redis server has to be set to, looked at once a process for each run of a server.

A server that may throw keys away to make room is refused.  What a crash can cost with its settings is said in the log.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from hiredis import ReplyError

from tenure.brokers.redis.node import Node, fields
from tenure.brokers.redis.resp import pack
from tenure.errors import ConfigError

log = logging.getLogger("tenure.brokers")

_SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync", "save")
_COSTS = {
    "always": "an answered add is on its disk",
    "everysec": "a crash of its machine can cost what was answered in the last second or two",
    "no": "a crash of its machine can cost what was answered in the last half minute or so",
}
"""appendfsync -> what can be lost; a killed server process loses nothing with any of them."""

_seen: set[str] = set()


class Settings(NamedTuple):
    """What could be found out; "" is unknown, since a managed server may forbid CONFIG."""

    policy: str
    appendonly: str
    appendfsync: str = ""
    save: str = ""


def check_once(node: Node, limit: float) -> None:
    """Look at the server's settings unless this process has seen this run of it; see `check`."""
    run = node.server.run_id
    if run in _seen:
        return
    check(node, limit)
    _seen.add(run)


def check(node: Node, limit: float) -> None:
    """Log what a crash can cost; raises ConfigError where the server may evict, ConnectionError as ever."""
    settings = read_settings(node, limit)
    problem = evicts(settings)
    if problem:
        raise ConfigError(f"the server at {node.address} {problem}")
    level, text = crash_costs(settings)
    log.log(level, "the server at %s has %s", node.address, text)


def read_settings(node: Node, limit: float) -> Settings:
    """Ask for the settings; where CONFIG is forbidden, INFO says some of it."""
    questions = [pack("CONFIG", "GET", name) for name in _SETTINGS]
    replies = node.exchange(b"".join([*questions, pack("INFO", "memory"), pack("INFO", "persistence")]), 6, limit)
    values = ["" if isinstance(one, ReplyError) or len(one) < 2 else one[1].decode() for one in replies[:4]]
    if isinstance(replies[0], ReplyError):
        memory, persistence = (fields(one) for one in replies[4:])
        aof = {"1": "yes", "0": "no"}.get(persistence.get("aof_enabled", ""), "")
        return Settings(memory.get("maxmemory_policy", ""), aof)
    return Settings(*values)


def evicts(settings: Settings) -> str:
    """Say what is wrong with a server that may throw jobs away, "" where it does not."""
    if settings.policy in ("noeviction", ""):
        return ""
    return (
        f"throws keys away when its memory is full, jobs among them: maxmemory-policy is {settings.policy!r}. "
        "Set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration file), "
        "or give Tenure a server of its own"
    )


def crash_costs(settings: Settings) -> tuple[int, str]:
    """Return the level and the words of the line on what a crash can cost."""
    unknown = "" if settings.policy else "; its maxmemory-policy could not be read: see to it that it is noeviction"
    level = logging.WARNING if unknown else logging.INFO
    if settings.appendonly == "yes":
        fsync = settings.appendfsync
        cost = _COSTS.get(fsync, "whether an answered add is on its disk depends on what it does not say")
        return level, f"appendonly yes, appendfsync {fsync or 'unknown'}: {cost}{unknown}"
    if settings.appendonly == "":
        return logging.WARNING, f"settings that could not be read: what a crash of it costs is not known{unknown}"
    kept = (
        f"save {settings.save!r}: a crash costs all since its last snapshot"
        if settings.save
        else "no save: a stop costs all jobs"
    )
    return logging.WARNING, f"appendonly no, {kept}; set appendonly yes{unknown}"
