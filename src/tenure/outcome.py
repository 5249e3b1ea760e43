"""What an execution came to, as frozen data, and an exception turned into text that can be stored.

The worker makes one `Outcome` for each hand-out that it starts; what becomes of the job is decided from it elsewhere.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, NamedTuple

MAX_FAILURE_BYTES = 16 * 1024
"""Upper limit in bytes for a packed failure."""

MAX_KIND_BYTES = 512
MAX_TEXT_BYTES = 3072
MAX_NOTES = 10
MAX_NOTE_BYTES = 256
MAX_LINKS = 12
MAX_LINK_BYTES = 256
MAX_ARGS_BYTES = 1024
MAX_FRAMES = 50
_OWN_FILES = __file__.removesuffix("outcome.py")
MAX_MEMBERS = 5
"""How many members of each exception group are looked at."""

MAX_DEPTH = 20
MAX_ARGS = 10
_OVERHEAD_BYTES = 512

_How = Literal["cause", "context", "member"]
Plain = None | bool | int | float | str


class Link(NamedTuple):
    """Another exception that a failure came with.

    `how`: it is the `cause` (raise ... from it), the `context` (it was being handled), or a `member` of the group.
    `depth` counts from 1, the failure itself being 0: a link belongs to the nearest one before it with a lower depth.
    """

    how: _How
    depth: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as plain data; packed it has at most 16 KiB.

    `kind` is the class's path (`shop.jobs.NoStock`), `text` what the exception says, `traceback` Python's own report
    of it with its causes, the newest frames last.  `notes` are those added with `add_note`.  `chain` are the causes
    and, of an exception group, the members.  `args` are the exception's, where they are a few plain values, else None.
    Control characters, NUL and lone surrogates are stored as escapes (`\\x00`, `\\udc80`).
    """

    kind: str
    text: str
    traceback: str = ""
    notes: tuple[str, ...] = ()
    chain: tuple[Link, ...] = ()
    args: tuple[Plain, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A job that has failed for good, as an `on_dead` hook is told of it.

    `attempt` is the last one, `fence` its hand-out number, `reason` what the dead list says.  `args` and `kwargs` are
    those of the call; both are empty where the job's bytes could not be read.
    """

    id: str
    key: str
    task: str
    queue: str
    attempt: int
    losses: int
    fence: int
    reason: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


DeadHook = Callable[[DeadJob, Failure], object]
"""What `on_dead` takes: the job, and its last error."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned; `result` is its packed value, or None when there is none to keep."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised; `after` are the seconds that the exception asks to wait at least (0: it does not)."""

    failure: Failure
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Retried:
    """The function asked to be run again, counted; `delay` is seconds, None: by the task's backoff."""

    failure: Failure
    reason: str
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The function asked to be run again in so many seconds, not counted."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """The job has failed for good whatever attempts are left: the function, or the task's options, say so."""

    failure: Failure
    reason: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """The function says that the job is not wanted any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The function was ended because its lease is lost, which is no fault of the job."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The function was ended because its time limit is over: an attempt like any other."""

    failure: Failure


NO_TASK = "this worker has no task "
"""What a job is given back with whose task its worker does not know; the task's name follows."""


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """This worker has no task of that name; another one may."""

    name: str


@dataclass(frozen=True, slots=True)
class Newer:
    """The message is of a newer layout than this worker reads; another one may read it."""

    version: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The message can never run: its bytes do not decode, or its arguments do not fit the function."""

    why: str


Outcome = (
    Returned | Failed | Retried | Snoozed | Died | Discarded | Interrupted | TimedOut | UnknownTask | Newer | Broken
)


# ------------------------------------------------------------------------------------------- an exception as text


def failure_from(error: BaseException) -> Failure:
    """Turn an exception into a `Failure`; never raises, whatever the exception's own methods do."""
    root = _tree_of(error)
    chain = tuple(_links(root))
    kind, text, notes, args = root.kind, root.text, root.notes, _plain_args(error)
    used = _OVERHEAD_BYTES + _size(kind) + _size(text) + sum(_size(note) + 3 for note in notes)
    used += sum(_size(link.kind) + _size(link.text) + 16 for link in chain)
    used += 0 if args is None else MAX_ARGS_BYTES
    return Failure(kind, text, fit("".join(_report(root)).rstrip("\n"), MAX_FAILURE_BYTES - used), notes, chain, args)


def kind_of(error: BaseException) -> str:
    """Return the path of an exception's class; of a built-in one its name alone.  Never raises."""
    try:
        kind = type(error)
        module, name = str(kind.__module__), str(kind.__qualname__)
    except BaseException:  # noqa: BLE001  (a metaclass may do anything at all)
        return "an exception whose class has no name"
    return fit(escape(name if module == "builtins" else f"{module}.{name}"), MAX_KIND_BYTES)


def text_of(value: object) -> str:
    """Return `str(value)`, escaped and at most 3 KiB long; never raises."""
    try:
        # Cut before the escapes: a text of a gigabyte would become several.
        text = shorten(str.__str__(str(value)), 4 * MAX_TEXT_BYTES)
    except BaseException as fault:  # noqa: BLE001
        return f"<its text could not be made: {kind_of(fault)}>"
    return fit(escape(text), MAX_TEXT_BYTES)


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions in an exception group, and nothing for any other exception."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    # Read past the exception's own attributes, which may do anything.
    found: tuple[BaseException, ...] = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
    return found


def escape(text: str) -> str:
    """Return the text with everything that a terminal or UTF-8 cannot take written as an escape."""
    return text if text.isprintable() else _UNSHOWN.sub(_escaped, text)


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text of more than `limit` characters, saying how much is missing."""
    if len(text) <= limit:
        return text
    note = f"... [{len(text) - limit} characters left out] ..."
    half = max(0, (limit - len(note)) // 2)
    return text[:half] + note + text[len(text) - half :]


def fit(text: str, limit: int) -> str:
    """Shorten to `limit` bytes (at least 64) of UTF-8; keeps both ends, since the last frames tell most."""
    if len(text) <= limit and _size(text) <= limit:
        return text
    characters = limit
    while _size(short := shorten(text, characters)) > limit:
        characters = characters * 3 // 4
    return short


# Control characters but for tab and newline, separators and marks that turn the writing direction, lone surrogates.
_UNSHOWN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _size(text: str) -> int:
    return len(text.encode())


# ------------------------------------------------------------------------------------ an exception and its causes


@dataclass(slots=True)
class _Node:
    """One exception of a chain or group, with those that belong to it."""

    error: BaseException
    kind: str
    text: str
    notes: tuple[str, ...]
    before: tuple[_How, _Node] | None = None
    members: list[_Node] = field(default_factory=list)
    more: int = 0


def _tree_of(error: BaseException) -> _Node:
    """Look at an exception and those it came with, breadth first, at most `MAX_LINKS` of them and none twice."""
    root = _node(error)
    seen = {id(error)}
    waiting = [(root, 1)]
    for node, depth in waiting:  # it grows while it is walked
        members = members_of(node.error)
        node.more = len(members)
        for how, other in (*_before(node.error), *(("member", other) for other in members[:MAX_MEMBERS])):
            if id(other) in seen or len(seen) > MAX_LINKS or depth > MAX_DEPTH:
                continue
            seen.add(id(other))
            found = _node(other)
            if how == "member":
                node.members.append(found)
                node.more -= 1
            else:
                node.before = (how, found)
            waiting.append((found, depth + 1))
    return root


def _node(error: BaseException) -> _Node:
    return _Node(error, kind_of(error), text_of(error), _notes_of(error))


def _before(error: BaseException) -> tuple[tuple[_How, BaseException], ...]:
    """Return what the exception was raised from, or else while what was being handled."""
    own = BaseException.__dict__
    cause = own["__cause__"].__get__(error)
    if cause is not None:
        return (("cause", cause),)
    context = own["__context__"].__get__(error)
    return () if context is None or own["__suppress_context__"].__get__(error) else (("context", context),)


def _notes_of(error: BaseException) -> tuple[str, ...]:
    try:
        notes = list(error.__notes__[:MAX_NOTES])
    except BaseException:  # noqa: BLE001  (most have none; a class may do anything at all)
        return ()
    return tuple(fit(text_of(note), MAX_NOTE_BYTES) for note in notes)


def _plain_args(error: BaseException) -> tuple[Plain, ...] | None:
    args: tuple[Any, ...] = BaseException.__dict__["args"].__get__(error)
    if len(args) > MAX_ARGS or not all(map(_is_plain, args)):
        return None
    return args if sum(_size(arg) if type(arg) is str else 9 for arg in args) <= MAX_ARGS_BYTES else None


def _is_plain(arg: object) -> bool:
    if type(arg) is str:
        return len(arg) <= MAX_ARGS_BYTES and not _SURROGATE.search(arg)
    return arg is None or type(arg) in (bool, float) or (type(arg) is int and arg.bit_length() < 64)


def _links(node: _Node, depth: int = 1) -> Iterator[Link]:
    """List what belongs to a node, each followed by what belongs to it."""
    linked: list[tuple[_How, _Node]] = [] if node.before is None else [node.before]
    for how, other in (*linked, *(("member", member) for member in node.members)):
        yield Link(how, depth, fit(other.kind, MAX_LINK_BYTES // 2), fit(other.text, MAX_LINK_BYTES))
        yield from _links(other, depth + 1)


_BETWEEN = {
    "cause": "\nThe above exception was the direct cause of the following exception:\n\n",
    "context": "\nDuring handling of the above exception, another exception occurred:\n\n",
}


def _report(node: _Node) -> Iterator[str]:
    """Write an exception as Python does: what came before it, its frames, its text and notes, and its members."""
    if node.before is not None:
        how, other = node.before
        yield from _report(other)
        yield _BETWEEN[how]
    yield from _frames_of(node.error)
    text = fit(node.text, MAX_LINK_BYTES)
    yield f"{node.kind}: {text}\n" if text else f"{node.kind}\n"
    yield from (f"{note}\n" for note in node.notes)
    for number, member in enumerate(node.members, 1):
        yield f"  +---------------- {number} ----------------\n"
        yield "".join(f"  | {line}\n" for line in "".join(_report(member)).splitlines())
    if node.more:
        yield f"  +---------------- and {node.more} more\n"


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is not Tenure's: how a task is called is the same each time."""
    first = frames
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        first = first.tb_next
    return first or frames


def _frames_of(error: BaseException) -> list[str]:
    try:
        # Read past the exception's own `__getattribute__`.
        frames = BaseException.__dict__["__traceback__"].__get__(error)
        lines = traceback.format_tb(_theirs(frames), limit=-MAX_FRAMES)
    except BaseException:  # noqa: BLE001  (a module's loader, asked for the source, may raise anything)
        return []
    return ["Traceback (most recent call last):\n", *map(escape, lines)] if lines else []
