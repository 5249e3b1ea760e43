"""What an error reply of Redis means for who asked: try again later, give up, or a plain refusal."""

from __future__ import annotations

import re

from tenure.errors import ConfigError, ServerError

AWAY = frozenset(
    {
        "LOADING",  # it reads its data after a start
        "MASTERDOWN",  # a replica that has lost its primary
        "READONLY",  # a primary that has become a replica
        "CLUSTERDOWN",  # not every slot is served
        "TRYAGAIN",  # a slot moves, and half of the keys have
        "BUSY",  # somebody's script runs on and on
        "NOREPLICAS",  # fewer replicas are there than it was told to write with
        "UNBLOCKED",  # a wait that ended since the server became a replica
        "MOVED",  # followed once already
        "ASK",
    }
)
"""Codes of a server that cannot do it now and will be able to, or another one can."""

_ACCESS = {
    "NOAUTH": "it wants a password: write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST",
    "WRONGPASS": "it does not know this user, or this password",
    "NOPERM": "this user may not do that: let it run scripts, the commands of lists, sorted sets, hashes, strings and "
    "streams, and INFO, on all keys that begin with the prefix (ACL SETUSER)",
    "DENIED": "it is in protected mode, which takes connections of its own machine only: give it a password",
}
"""Codes of a server that will not do it whoever asks again -> what to do."""

_INSIDE = re.compile(r"-(OOM|READONLY|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|NOPERM) ")
"""What stopped a script, where Redis 6 puts it inside of an error of its own."""

_WHERE = re.compile(r"\s*script: [0-9a-f]{40}.*", re.DOTALL)
"""Where in a script something was refused, which tells a reader nothing."""


def code_of(text: str) -> str:
    """Return the code of an error reply, that of what stopped a script where it was one."""
    code = text.partition(" ")[0]
    if code == "ERR":
        inside = _INSIDE.search(text)
        if inside is not None:
            return inside.group(1)
        if "max number of clients" in text:
            return "BUSY"
    return code


def cannot_write(error: ServerError) -> str:
    """Say why a server cannot write now, and the way out where that is its memory."""
    if error.code == "OOM":
        return full_memory()
    return "the server cannot write now: " + _WHERE.sub("", error.text)


def full_memory(limit: str = "") -> str:
    """Say that a server has no memory left, and the way out; `limit` is how much it may use, "" where unknown."""
    size = f" ({limit})" if limit else ""
    return (
        f"Redis is full: it is at its `maxmemory`{size}. Raise that (CONFIG SET maxmemory), or make room: let workers "
        "end jobs, or empty a queue with `tenure purge`"
    )


def meaning(error: Exception, server: object) -> ConnectionError | ConfigError | ServerError:
    """Return what to raise for an error reply of `server`: ServerError where it is for the caller to judge."""
    text = str(error)
    code = code_of(text)
    if code in AWAY:
        return ConnectionError(f"the server at {server} cannot do it now: {text}")
    if code in _ACCESS:
        return ConfigError(f"the server at {server} refuses this client: {_ACCESS[code]} ({text})")
    return ServerError(code, text.removeprefix(f"{code} "))
