"""One line to a command: the words of each verb and what they have to be.

`read` returns a finished command, or a `Frame` when a body or adds follow the line.  A line that is not what the
table of the protocol says raises `Refused`, whose `Bad` names the word; where its body's length is known the frame
carries the `Bad`, so that the body is read over.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable
from typing import Any, NamedTuple

from tenure.wire.commands import (
    MAX_BATCH_LINES,
    MAX_TAKE,
    MAX_WAIT_IDS,
    PROTOCOL,
    Add,
    Bad,
    Browse,
    Bye,
    CancelJob,
    Command,
    Extend,
    ExtendItem,
    Hello,
    Purge,
    PurgeQueue,
    Report,
    Requeue,
    Settle,
    Show,
    Switch,
    Take,
    Untake,
    Wait,
)
from tenure.wire.fields import (
    MAX_SKIP,
    Refused,
    id_of,
    length_of,
    moment_of,
    name_of,
    number_of,
    receipt_of,
    shown,
    words_of,
)
from tenure.wire.words import key_name, queue_name, queue_names, queue_of, task_name, task_of, unquote

_ROLES = ("producer", "worker", "keeper", "admin")
_new = tuple.__new__


class Frame(NamedTuple):
    """A line that is read, whose body (`length` bytes; -1: none) or `then` adds are still to come."""

    build: Callable[[bytes], Command]
    length: int
    then: int = 0
    bad: Bad | None = None


def read(line: bytes, only_add: bool = False) -> Command | Frame:
    """Read one line without its end; raises Refused.  With `only_add` any other verb is fatal."""
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise Refused("a line is ASCII; percent-encode the rest", fatal=only_add) from None
    verb = text.partition(" ")[0]
    if only_add and verb != "add":
        raise Refused(f"{shown(verb)} stands where an add of the settlement was to come", "framing", True)
    reader = _READERS.get(verb)
    if reader is None:
        raise Refused(f"there is no line {shown(verb)}", "unknown-verb")
    return reader(text)


def _hello(text: str) -> Command:
    words = words_of(text, 2)
    if number_of(words[1], "protocol version") != PROTOCOL:
        raise Refused(f"this server speaks protocol version {PROTOCOL}, not {words[1]}", "version")
    words = words_of(text, 5, 5)
    if words[3] not in _ROLES:
        raise Refused(f"{shown(words[3])} is not a role: {', '.join(_ROLES)}")
    name = "" if words[4] == "-" else name_of(queue_name, words[4])
    return Hello(PROTOCOL, id_of(words[2], "a session"), words[3], name)  # type: ignore[arg-type]  # looked up above


_ADD_OPTIONS: dict[str, tuple[int, Callable[[str], Any]]] = {
    "k": (0, lambda word: name_of(key_name, word)),
    "p": (1, lambda word: number_of(word, "priority", 0, 9)),
    "at": (2, lambda word: moment_of(word, "at")),
    "x": (3, lambda word: moment_of(word, "x")),
    "vt": (4, lambda word: number_of(word, "vt", 1)),
    "ma": (5, lambda word: number_of(word, "ma", 1)),
    "ml": (6, lambda word: number_of(word, "ml", 1)),
}
_ADD_DEFAULTS = (None, 5, None, None, None, 20, 5)


def _add_options(words: list[str]) -> tuple[Any, ...]:
    """Read the options of an add into the order of the command's fields."""
    found: list[Any] = list(_ADD_DEFAULTS)
    seen: set[str] = set()
    for word in words:
        name, sign, value = word.partition("=")
        option = _ADD_OPTIONS.get(name)
        if option is None or not sign:
            raise Refused(f"add: {shown(word)} is no option; there are {', '.join(_ADD_OPTIONS)}")
        if name in seen:
            raise Refused(f"add: the option {name} stands twice")
        seen.add(name)
        found[option[0]] = option[1](value)
    return tuple(found)


def _add(text: str) -> Frame:
    words = words_of(text, 6)
    length = length_of(words[5])
    try:
        front = (id_of(words[1]), queue_name(words[2]), task_name(words[3]), id_of(words[4], "a fingerprint"))
        back = _ADD_DEFAULTS if len(words) == 6 else _add_options(words[6:])
    except Refused as refused:
        return Frame(_nothing, length, 0, refused.bad)
    except ValueError as error:
        return Frame(_nothing, length, 0, Bad("bad-line", str(error)))
    return Frame(lambda body: _new(Add, front + (body,) + back), length)


_plain_add = re.compile(rb"add ([0-9a-f]{32}) ([!-~]+) ([!-~]+) ([0-9a-f]{32}) ([0-9]{1,9})\n").match


def plain_add(data: bytes, max_line: int, max_body: int) -> Add | None:
    """Return the add without options that `data` is, body and ends included; None: read it as `read` does.

    Nearly all that a producer sends is this, so it is read in one step; the answer to anything else stays `read`'s.
    """
    found = _add_at(data, 0, max_line, max_body)
    return None if found is None or found[1] != len(data) else found[0]


def plain_adds(data: bytes, position: int, max_line: int, max_body: int) -> tuple[list[Add], int]:
    """Return all adds without options that stand complete at `position`, and where the next line begins."""
    adds: list[Add] = []
    while found := _add_at(data, position, max_line, max_body):
        add, position = found
        adds.append(add)
    return adds, position


def _add_at(data: bytes, position: int, max_line: int, max_body: int) -> tuple[Add, int] | None:
    """Return the add without options that stands complete at `position`, and where the next line begins."""
    found = _plain_add(data, position)
    if found is None:
        return None
    id, queue, task, fingerprint, length = found.groups()
    begin = found.end()
    size = int(length)
    end = begin + size
    if data[end : end + 1] != b"\n" or begin - position > max_line or size > max_body:
        return None
    try:
        front = (unhexlify(id), queue_of(queue), task_of(task), unhexlify(fingerprint), data[begin:end])
    except ValueError:
        return None
    return _new(Add, front + _ADD_DEFAULTS), end + 1


def _nothing(body: bytes) -> Command:
    raise AssertionError("a refused frame is never built")


def _take(text: str) -> Command:
    words = text.split(" ", 5)
    if len(words) < 6:
        raise Refused(f"take: {len(words) - 1} words where 5 or more were to come")
    limit = number_of(words[2], "limit", 1)
    if limit > MAX_TAKE:
        raise Refused(f"a take asks for at most {MAX_TAKE} jobs, not {limit}", "limit")
    return Take(
        number_of(words[1], "take number", 1),
        limit,
        number_of(words[3], "wait"),
        number_of(words[4], "vt", 1),
        name_of(queue_names, words[5]),
    )


_plain_dones = re.compile(rb"(?:done [0-9a-f]{32}:[1-9][0-9]{0,17}\n)+").match
_receipts = re.compile(rb"([0-9a-f]{32}):([0-9]+)\n").findall
LONGEST_PLAIN_DONE = 57
"""Bytes of it, its end included."""


def plain_dones(data: bytes, position: int) -> tuple[list[Settle], int]:
    """Return all `done` without result and options that stand at `position`, and where the next line begins.

    Workers send many behind each other, so these are read in one step; the answer to anything else stays `read`'s.
    """
    found = _plain_dones(data, position)
    if found is None:
        return [], position
    end = found.end()
    receipts = _receipts(data, position, end)
    return [_new(Settle, ("done", unhexlify(id), int(n), 0, "", None, (), None, True)) for id, n in receipts], end


# verb: (words before the options, LEN not counted; whether LEN follows: "no", "may", "must")
_SETTLE: dict[str, tuple[int, str]] = {
    "done": (2, "may"),
    "retry": (4, "must"),
    "release": (4, "no"),
    "dead": (3, "must"),
    "cancel": (3, "no"),
}


def _settle(text: str) -> Command | Frame:
    words = text.split(" ")
    verb = words[0]
    plain, body = _SETTLE[verb]
    options = plain
    length = -1
    if body == "must" or (body == "may" and len(words) > plain and "=" not in words[plain]):
        words = words_of(text, plain + 1)
        length = length_of(words[plain])
        options += 1
    then = _then(words[options:]) if len(words) > options else 0
    try:
        build = _settle_builder(words, plain, options, length >= 0)
    except Refused as refused:
        if length < 0 and not then:
            raise
        return Frame(_nothing, length, then, refused.bad)
    return Frame(build, length, then) if length >= 0 or then else build(b"")


def _settle_builder(words: list[str], plain: int, options: int, has_body: bool) -> Callable[[bytes], Command]:
    """Read the words of a settlement; returns what makes the command once its body is there."""
    verb = words[0]
    if len(words) < plain:
        raise Refused(f"{verb}: {len(words) - 1} words where {plain - 1} or more were to come")
    id, number = receipt_of(words[1])
    delay = number_of(words[2], "delay") if plain == 4 else 0
    reason = name_of(unquote, words[plain - 1]) if plain > 2 else ""
    session, ran = _settle_options(verb, words[options:]) if len(words) > options else (None, True)
    front = (verb, id, number, delay, reason)
    if not has_body:
        return lambda _: _new(Settle, front + (None, (), session, ran))
    return lambda body: _new(Settle, front + (body, (), session, ran))


def _then(words: list[str]) -> int:
    """Return how many adds follow; a wrong number is fatal, for the adds would be taken for lines of their own."""
    found = [word for word in words if word.startswith("then=")]
    if not found:
        return 0
    word = found[0][5:]
    if len(found) > 1 or not word.isdigit() or len(word) > 19:
        raise Refused(f"{shown(found[-1])} does not tell how many adds follow", "framing", True)
    count = int(word)
    if count > MAX_BATCH_LINES:
        raise Refused(f"a settlement has at most {MAX_BATCH_LINES} adds, not {count}", "limit", True)
    return count


def _settle_options(verb: str, words: list[str]) -> tuple[bytes | None, bool]:
    """Return the session of `as=`, and False for `run=0`; `then=` has been read before."""
    session: bytes | None = None
    ran = True
    for word in words:
        name, sign, value = word.partition("=")
        if name == "as" and sign and session is None:
            session = id_of(value, "a session")
        elif word == "run=0" and verb == "dead" and ran:
            ran = False
        elif not (name == "then" and sign and verb in ("done", "retry")):
            raise Refused(f"{verb}: {shown(word)} is no option here, or stands twice")
    return session, ran


def _extend(text: str) -> Command | Frame:
    words = words_of(text, 2)[1:]
    lengths = [length_of(tail) if plus else -1 for _, plus, tail in (word.partition("+") for word in words)]
    total = sum(length for length in lengths if length >= 0)
    if total > MAX_SKIP:
        raise Refused(f"bodies of {total} bytes are too much even to read over", "framing", True)
    has_body = max(lengths) >= 0
    try:
        receipts = [receipt_of(word.partition("+")[0]) for word in words]
    except Refused as refused:
        if not has_body:
            raise
        return Frame(_nothing, total, 0, refused.bad)
    if not has_body:
        return Extend(tuple([ExtendItem(id, number) for id, number in receipts]))
    return Frame(lambda body: Extend(tuple(_cut(receipts, lengths, body))), total)


def _cut(receipts: list[tuple[bytes, int]], lengths: list[int], body: bytes) -> list[ExtendItem]:
    """Give each receipt its part of the body."""
    items = []
    position = 0
    for (id, number), length in zip(receipts, lengths, strict=True):
        if length < 0:
            items.append(ExtendItem(id, number))
            continue
        items.append(ExtendItem(id, number, body[position : position + length]))
        position += length
    return items


def _bye(text: str) -> Command:
    words = words_of(text, 4)
    if words[2] not in ("left", "lost"):
        raise Refused(f"{shown(words[2])} is not the end of a session: left or lost")
    receipts = tuple([receipt_of(word) for word in words[4:]])
    cause = name_of(unquote, words[3])
    return Bye(id_of(words[1], "a session"), words[2], cause, receipts)  # type: ignore[arg-type]  # looked up above


def _untake(text: str) -> Command:
    words = words_of(text, 4)
    receipts = tuple([receipt_of(word) for word in words[4:]])
    number = number_of(words[2], "take number", 1)
    return Untake(id_of(words[1], "a session"), number, name_of(unquote, words[3]), receipts)


def _cancel_job(text: str) -> Command:
    words = words_of(text, 2, 3)
    if len(words) == 3 and words[2] != "terminate":
        raise Refused(f"cancel-job: {shown(words[2])} is not terminate")
    return CancelJob(id_of(words[1]), len(words) == 3)


def _switch(text: str) -> Command:
    words = words_of(text, 2, 2)
    return Switch(words[0], name_of(queue_name, words[1]))  # type: ignore[arg-type]  # the table below names it


def _purge_queue(text: str) -> Command:
    words = words_of(text, 3, 3)
    return PurgeQueue(name_of(queue_name, words[1]), None if words[2] == "-" else id_of(words[2]))


def _browse(text: str) -> Command:
    words = words_of(text, 5, 5)
    if words[1] != "dead":
        raise Refused(f"browse: {shown(words[1])} is not dead")
    queue = None if words[2] == "-" else name_of(queue_name, words[2])
    return Browse(queue, number_of(words[3], "limit"), None if words[4] == "-" else id_of(words[4]))


def _wait(text: str) -> Command:
    words = words_of(text, 3)
    if len(words) - 2 > MAX_WAIT_IDS:
        raise Refused(f"a wait asks for at most {MAX_WAIT_IDS} jobs, not {len(words) - 2}; send several lines", "limit")
    return Wait(number_of(words[1], "wait"), tuple([id_of(word) for word in words[2:]]))


def _report(text: str) -> Command:
    return Report(words_of(text, 1, 1)[0])  # type: ignore[arg-type]  # the table below names it


_READERS: dict[str, Callable[[str], Command | Frame]] = {
    "add": _add,
    "take": _take,
    **dict.fromkeys(_SETTLE, _settle),
    "extend": _extend,
    "bye": _bye,
    "untake": _untake,
    "hello": _hello,
    "cancel-job": _cancel_job,
    "requeue": lambda text: Requeue(id_of(words_of(text, 2, 2)[1])),
    "purge": lambda text: Purge(id_of(words_of(text, 2, 2)[1])),
    **dict.fromkeys(("pause", "resume", "close", "open"), _switch),
    "purge-queue": _purge_queue,
    "show": lambda text: Show(id_of(words_of(text, 2, 2)[1])),
    "browse": _browse,
    "wait": _wait,
    **dict.fromkeys(("record", "verify", "queues"), _report),
}
