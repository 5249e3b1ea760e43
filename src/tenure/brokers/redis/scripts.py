"""The scripts that carry out the queue's rules inside Redis, one a verb, each with the parts that it shares.

A script is known to the server by its own text, so workers of two versions of Tenure run side by side, each with its
own scripts, over one key layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path

_FOLDER = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script; `sha` is the SHA-1 of its text, by which Redis calls it.

    `timed`: it lets time pass in its queue, and is told first which run of the server this is, and for how long the
    caller wanted nothing.
    """

    name: str
    text: str = field(repr=False)
    sha: str
    timed: bool


def _script(name: str, *parts: str) -> Script:
    text = "\n".join((_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", *parts, name))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest(), "tidying" in parts)


ADD = _script("add", "adding")
TAKE = _script("take", "ending", "tidying")
SETTLE = _script("settle", "adding", "ending")
EXTEND = _script("extend", "ending", "tidying")
BYE = _script("bye", "ending")
UNTAKE = _script("untake", "ending")
STATES = _script("states", "ending", "tidying")
CANCEL = _script("cancel", "ending")
REQUEUE = _script("requeue", "adding", "ending")
PURGE = _script("purge", "ending")
SWITCH = _script("switch")
EMPTY = _script("empty", "ending")
SHOW = _script("show")
DEAD = _script("dead")
RECORD = _script("record", "ending", "tidying")
RECOUNT = _script("recount")
QUEUE = _script("queue", "ending", "tidying")
HAND_OVER = _script("hand_over", "adding")
OUTGOING = _script("outgoing")
WHERE = _script("where")
