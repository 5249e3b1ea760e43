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


def _read(*parts: str) -> str:
    return "\n".join((_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in parts)


def _aside(name: str, parts: tuple[str, ...], *wanted: str) -> str:
    """Return a function that makes these of the parts' functions when it is called first.

    Whatever a script does not make costs a run of it nothing, and most runs want none of these.
    """
    made = ", ".join(f"{one} = {one}" for one in wanted)
    return (
        f"local {name}_made\nlocal function {name}()\nif {name}_made then return {name}_made end\n"
        f"{_read(*parts)}\n{name}_made = {{{made}}}\nreturn {name}_made\nend"
    )


_ASIDE = {
    "keys()": _aside("keys", ("keys",), "key_holder", "hold_key", "held_by_another"),
    "rules()": _aside(
        "rules", ("ending", "tidying"), "bury", "catch_up", "end_waiting", "guarded", "held_by", "keep_handout", "sweep"
    ),
}


def _script(name: str, *parts: str) -> Script:
    text = "\n".join(_ASIDE.get(part) or _read(part) for part in ("prelude", *parts, name))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest(), "looking" in parts)


_ADDING = ("keys()", "adding")
_TIMED = ("ending", "looking", "tidying")

ADD = _script("add", *_ADDING)
TAKE = _script("take", "looking", "rules()")
SETTLE = _script("settle", *_ADDING, "ending")
EXTEND = _script("extend", *_TIMED)
BYE = _script("bye", "ending")
UNTAKE = _script("untake", "ending")
STATES = _script("states", *_TIMED)
CANCEL = _script("cancel", "ending")
REQUEUE = _script("requeue", "keys", "ending")
PURGE = _script("purge", "ending")
SWITCH = _script("switch")
EMPTY = _script("empty", "ending")
SHOW = _script("show")
DEAD = _script("dead")
RECORD = _script("record", *_TIMED)
RECOUNT = _script("recount")
QUEUE = _script("queue", *_TIMED)
HAND_OVER = _script("hand_over", *_ADDING)
OUTGOING = _script("outgoing")
WHERE = _script("where")
