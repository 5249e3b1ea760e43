"""Answers to values: the client's reading side, without I/O.

What no rule allows raises ProtocolError; an `err` raises the error that it stands for.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Sequence
from typing import NamedTuple

from tenure.errors import KeyConflict, MessageTooLarge, NoSpace, ProtocolError, QueueClosed, ServerError, TenureError
from tenure.wire.commands import MAX_BODY, MAX_LINE, MAX_TAKE, Job, StateLine
from tenure.wire.words import key_name, queue_of, task_of, unquote

MAX_ANSWER = 1024 * 1024 * 1024
"""Bytes of an answer's payload beyond which the other side is not believed."""

_HOWS = frozenset(("done", "retried", "released", "left", "returned", "lost", "dead", "cancelled", "unknown"))
_ADDS = frozenset(("created", "exists", "conflict"))
_JOB_OPTIONS = ("k", "p", "at", "x", "ma", "ml")
_JOB_DEFAULTS = (None, 5, None, None, 20, 5)
_new = tuple.__new__


class Reply(NamedTuple):
    """One answer: its line without the end, and what follows a `jobs`, `states` or `json` line (JSON with its end)."""

    line: bytes
    payload: bytes = b""


class ReplyReader:
    """Turns the bytes of one connection into answers; complete ones come out in order."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._line: bytes | None = None
        self._wanted = 0

    @property
    def partial(self) -> bool:
        """True inside an unfinished answer."""
        return bool(self._held) or self._line is not None

    def feed(self, data: bytes) -> list[Reply]:
        """Take the next bytes and return the answers that are complete now; raises ProtocolError."""
        if self._held:
            self._held += data
            if len(self._held) < self._wanted or (self._line is None and b"\n" not in data):
                self._check_line(len(self._held))
                return []
            data = bytes(self._held)
            self._held.clear()
        if self._line is None and _all_short(data):
            return [_new(Reply, (line, b"")) for line in data[:-1].split(b"\n")]
        out: list[Reply] = []
        rest = self._read(data, out)
        if rest < len(data):
            self._held += data[rest:]
            self._check_line(len(self._held))
        return out

    def _check_line(self, size: int) -> None:
        if self._line is None and size > MAX_LINE:
            raise ProtocolError(f"an answer's line has more than {MAX_LINE} bytes")

    def _read(self, data: bytes, out: list[Reply]) -> int:
        """Move complete answers from `data` to `out`; returns where the unfinished rest begins."""
        position = 0
        while True:
            if self._line is None:
                end = data.find(b"\n", position)
                if end < 0:
                    return position
                line = data[position:end]
                position = end + 1
                self._wanted = payload_length(line)
                if not self._wanted:
                    out.append(Reply(line))
                    continue
                self._line = line
            end = position + self._wanted
            if end > len(data):
                return position
            out.append(Reply(self._line, data[position:end]))
            position, self._line, self._wanted = end, None, 0


def whole(data: bytes) -> Reply | None:
    """Return the answer that `data` is, complete and with nothing behind it, as nearly all are; else None."""
    end = data.find(b"\n")
    if end < 0:
        return None
    line = data[:end]
    return Reply(line, data[end + 1 :]) if end + 1 + payload_length(line) == len(data) else None


def _all_short(data: bytes) -> bool:
    """Whether these are complete lines that nothing follows, as those to settlements and adds are."""
    return data.endswith(b"\n") and not data.startswith((b"j", b"s")) and b"\nj" not in data and b"\ns" not in data


def payload_length(line: bytes) -> int:
    """Return how many bytes follow an answer's line, the last line end included; raises ProtocolError."""
    if not line.startswith((b"j", b"s")):
        return 0
    words = line.split(b" ")
    if words[0] in (b"jobs", b"states") and len(words) == 3:
        length = _int(words[2].decode("latin-1"))
    elif words[0] == b"json" and len(words) == 2:
        length = _int(words[1].decode("latin-1")) + 1
    else:
        raise _malformed(line)
    if length > MAX_ANSWER:
        raise ProtocolError(f"an answer of {length} bytes")
    return length


def _malformed(line: bytes) -> ProtocolError:
    return ProtocolError(f"the server answered {line[:200]!r}, which is no answer to this line")


def _int(word: str) -> int:
    if not word.isdecimal() or not word.isascii() or len(word) > 19:
        raise ProtocolError(f"{word[:60]!r} is not a number")
    return int(word)


def error_of(line: bytes, id: str = "", key: str = "", size: int = 0, limit: int = MAX_BODY) -> TenureError:
    """Return the error that an `err` line stands for; a ProtocolError when it is none, or ends the connection.

    `id`, `key` and `size` (bytes) are those of the line that is answered, `limit` is the server's for a body.
    """
    words = line.decode("utf-8", "replace").split(" ", 2)
    if words[0] != "err" or len(words) < 2:
        return _malformed(line)
    code, text = words[1], words[2] if len(words) == 3 else ""
    if code == "timeout":  # written before what it seems to answer had come, as where this process was frozen
        return ProtocolError(f"the server has closed the connection: {text}")
    if code == "key-conflict" and id:
        return KeyConflict(id, text.partition(" ")[0], key)
    if code == "too-large" and id:
        return MessageTooLarge(id, size, limit)
    if code == "no-space" and id:
        return NoSpace(f"job {id} was not added: {text}", id)
    if code == "queue-closed" and id:
        return QueueClosed(f"job {id} was not added: {text}", id)
    return ServerError(code, text)


class Welcome(NamedTuple):
    """The answer to `hello`; times are milliseconds, sizes are bytes."""

    version: str
    server: str
    start: str
    time: int
    floor: int
    vt: int
    body: int
    line: int
    take: int
    batch: int
    durability: str


_WELCOME_TEXTS = ("version", "server", "start", "durability")
_WELCOME_NUMBERS = ("time", "floor", "vt", "body", "line", "take", "batch")


def parse_welcome(line: bytes) -> Welcome:
    """Read the answer to `hello`; raises ProtocolError or ServerError."""
    words = line.decode("latin-1").split(" ")
    if words[:2] != ["ok", "tenure/1"]:
        raise error_of(line)
    found = dict(word.partition("=")[::2] for word in words[2:])
    try:
        version, server, start, durability = [unquote(found[name]) for name in _WELCOME_TEXTS]
        time, floor, vt, body, longest, take, batch = [_int(found[name]) for name in _WELCOME_NUMBERS]
        return Welcome(version, server, start, time, floor, vt, body, longest, take, batch, durability)
    except (KeyError, ValueError):
        raise _malformed(line) from None


def parse_added(line: bytes, id: str, key: str = "", size: int = 0, limit: int = MAX_BODY) -> tuple[str, bool]:
    """Read the answer to an add: the job's id and whether this add made it; raises what `error_of` returns."""
    words = line.split(b" ")
    if len(words) != 3 or words[0] != b"ok" or words[2] not in (b"created", b"exists") or not _is_id(words[1]):
        raise error_of(line, id, key, size, limit)
    return words[1].decode("ascii"), words[2] == b"created"


def _is_id(word: bytes) -> bool:
    try:
        return len(word) == 32 and bytes.fromhex(word.decode("ascii")).hex().encode() == word
    except ValueError:
        return False


def parse_settled(line: bytes) -> tuple[str, str, tuple[bool, ...]]:
    """Read the answer to a settlement: (answer, detail, created?...), the fields of `broker.Settled`."""
    if line == b"ok done":
        return "ok", "done", ()
    words = line.decode("latin-1").split(" ")
    if words[0] == "ok" and len(words) >= 2:
        adds = words[2:]
        if words[1] in ("done", "scheduled", "dead", "cancelled", "released") and {*adds} <= _ADDS:
            return "ok", words[1], tuple([word == "created" for word in adds])
    elif words[0] == "refused" and len(words) == 2 and words[1] in _HOWS:
        return "refused", words[1], ()
    elif words in (["lost"], ["gone"]):
        return words[0], "", ()
    elif words[:2] == ["err", "closed"]:
        return "closed", "", ()
    raise error_of(line)


def parse_extended(line: bytes, count: int) -> list[tuple[int | None, str | None]]:
    """Read the answer to an extend of `count` receipts: (hold in ms or None: lost, cancel) for each."""
    words = line.decode("latin-1").split(" ")
    if words[0] != "ok":
        raise error_of(line)
    if len(words) != count + 1:
        raise _malformed(line)
    out: list[tuple[int | None, str | None]] = []
    for word in words[1:]:
        hold, slash, cancel = word.partition("/")
        if slash and cancel not in ("ask", "terminate"):
            raise _malformed(line)
        out.append((None, None) if word == "lost" else (_int(hold), cancel or None))
    return out


def parse_bye(line: bytes, count: int) -> list[tuple[str, bool]]:
    """Read the answer to a bye that listed `count` receipts: (how it had ended, late?) for each."""
    words = line.decode("latin-1").split(" ")
    if words[0] != "ok":
        raise error_of(line)
    pairs = [word.partition("/") for word in words[1:]]
    if len(pairs) != count or any(how not in _HOWS or (slash and late != "late") for how, slash, late in pairs):
        raise _malformed(line)
    return [(how, late == "late") for how, _, late in pairs]


def parse_jobs(header: bytes, payload: bytes) -> list[Job]:
    """Read the answer to a take by slicing `payload`; raises ProtocolError, or ServerError for an `err`."""
    if header == b"jobs 0 0":
        return []
    words = header.split(b" ")
    if words[0] != b"jobs" or len(words) != 3:
        raise error_of(header)
    count = _int(words[1].decode("latin-1"))
    if count > MAX_TAKE:
        raise _malformed(header)
    out: list[Job] = []
    position = 0
    try:
        for _ in range(count):
            position = _read_job(payload, position, out)
    except (ValueError, IndexError):
        raise _malformed(payload[position:]) from None
    if position != len(payload):
        raise _malformed(payload[position:])
    return out


_job_line = re.compile(
    rb"job ([0-9a-fA-F]{32}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,19})"
    rb" ([!-~]+) ([!-~]+) ([0-9a-fA-F]{32}) ([0-9]{1,19})(?: ([ -~]+))?\n"
).match


def _read_job(payload: bytes, position: int, out: list[Job]) -> int:
    """Read the job at `position` and return where the next one begins; raises ValueError or IndexError."""
    line = _job_line(payload, position)
    if line is None:
        raise ValueError
    id, number, hold, vt, attempt, losses, queue, task, fingerprint, length, options = line.groups()
    start = line.end()
    stop = start + int(length)
    if payload[stop] != 10:
        raise ValueError
    front = (unhexlify(id), int(number), int(hold), int(vt), int(attempt), int(losses), queue_of(queue), task_of(task))
    back = _JOB_DEFAULTS if options is None else _job_options(options.decode("ascii").split(" "))
    out.append(_new(Job, (*front, unhexlify(fingerprint), payload[start:stop], *back)))
    return stop + 1


def _job_options(words: list[str]) -> tuple[object, ...]:
    """Read the options of a delivered job into the order of its fields."""
    found: list[object] = list(_JOB_DEFAULTS)
    for word in words:
        name, _, value = word.partition("=")
        found[_JOB_OPTIONS.index(name)] = key_name(value) if name == "k" else _int(value)
    return tuple(found)


_STATES = frozenset(("scheduled", "ready", "running", "done", "dead", "cancelled", "unknown", "expired"))
_KINDS = frozenset(("none", "result", "failure", "progress", "later"))


def parse_states(header: bytes, payload: bytes, ids: Sequence[str]) -> list[StateLine]:
    """Read the answer to a wait for `ids`, one state each in their order; raises ProtocolError or ServerError."""
    words = header.split(b" ")
    if words[0] != b"states" or len(words) != 3:
        raise error_of(header)
    if words[1] != b"%d" % len(ids):
        raise _malformed(header)
    out: list[StateLine] = []
    position = 0
    try:
        for id in ids:
            position = _read_state(payload, position, id, out)
    except (ValueError, IndexError):
        raise _malformed(payload[position:]) from None
    if position != len(payload):
        raise _malformed(payload[position:])
    return out


def _read_state(payload: bytes, position: int, asked: str, out: list[StateLine]) -> int:
    """Read the state at `position` and return where the next one begins; raises ValueError or IndexError."""
    end = payload.index(b"\n", position)
    verb, id, state, queue, attempts, losses, reason, kind, length = payload[position:end].decode("ascii").split(" ")
    start = end + 1
    stop = start + _int(length)
    if verb != "state" or id != asked or state not in _STATES or kind not in _KINDS or payload[stop] != 10:
        raise ValueError(verb)
    front = (bytes.fromhex(id), state, unquote(queue), _int(attempts), _int(losses))
    out.append(_new(StateLine, (*front, unquote(reason), kind, payload[start:stop])))
    return stop + 1
