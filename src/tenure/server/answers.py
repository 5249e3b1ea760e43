"""The engine's answers as lines."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from dataclasses import dataclass

from tenure.engine.adding import AddAnswer, Closed, Conflict, Created, Exists, Full
from tenure.engine.settling import DONE, ByeAnswer, Held, SettleAnswer
from tenure.wire import encode
from tenure.wire.commands import (
    FLOOR,
    MAX_BATCH_LINES,
    MAX_BODY,
    MAX_LINE,
    MAX_TAKE,
    PROTOCOL,
)

_ADDED = {Created: "created", Exists: "exists", Conflict: "conflict"}
_CANCEL = ("", "/ask", "/terminate")
_NO_QUEUE = encode.err("unknown", "no queue of this name; the first job makes it")
_MIB = 1024 * 1024


def _no_space(answer: Full) -> str:
    return (
        f"{answer.room / _MIB:.1f} MiB are free for the data file and {answer.wanted / _MIB:.1f} MiB are wanted "
        "for new jobs; nothing was stored. Make room on its disk; jobs that run can be ended meanwhile"
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """What a server says of itself, and how it words its answers; `max_body` and `max_line` are bytes."""

    version: str
    start: str
    durability: str
    max_body: int = MAX_BODY
    max_line: int = MAX_LINE
    default_vt: int = 30_000

    def hello(self, store_id: str, wall: int) -> bytes:
        return (
            f"ok tenure/{PROTOCOL} version={self.version} server={store_id} start={self.start} time={wall} "
            f"floor={FLOOR * 1000:.0f} vt={self.default_vt} body={self.max_body} line={self.max_line} take={MAX_TAKE} "
            f"batch={MAX_BATCH_LINES} durability={self.durability}\n"
        ).encode()

    def add(self, answer: AddAnswer) -> bytes:
        if isinstance(answer, Created):
            return b"ok %b created\n" % hexlify(answer.id)
        if isinstance(answer, Exists):
            return b"ok %b exists\n" % answer.first.hex().encode()
        if isinstance(answer, Full):
            return encode.err("no-space", _no_space(answer))
        if isinstance(answer, Closed):
            text = f"its queue {answer.queue!r} takes no new jobs until somebody opens it (`tenure open QUEUE`)"
            return encode.err("queue-closed", text)
        return encode.err("key-conflict", f"{answer.first.hex()} holds this key with other arguments")

    def settle(self, answers: Sequence[SettleAnswer]) -> bytes:
        return b"".join([b"ok done\n" if answer is DONE else self._settle(answer) for answer in answers])

    def _settle(self, answer: SettleAnswer) -> bytes:
        if answer.word == "ok":
            words = [answer.detail, *(_ADDED[type(a)] for a in answer.added)]
            return f"ok {' '.join(words)}\n".encode()
        if answer.word == "refused":
            return f"refused {answer.detail}\n".encode()
        if answer.word == "closed":
            return encode.err("closed", "this session has said bye")
        return f"{answer.word}\n".encode()

    def extend(self, answers: Sequence[Held] | None) -> bytes:
        if answers is None:
            return encode.err("closed", "this session has said bye")
        words = ["lost" if a.hold is None else f"{a.hold}{_CANCEL[a.cancel]}" for a in answers]
        return f"ok {' '.join(words)}\n".encode()

    def bye(self, answers: Sequence[ByeAnswer]) -> bytes:
        words = ["unknown" if a.how is None else f"{a.how}{'/late' if a.late else ''}" for a in answers]
        return f"{' '.join(['ok', *words])}\n".encode()

    def operator(self, answer: str | bytes | None) -> bytes:
        """The answer to cancel-job, requeue and purge."""
        if answer is None:
            return encode.err("unknown", "no job with this id")
        if isinstance(answer, bytes):
            return encode.err("key-conflict", f"{answer.hex()} holds this job's key now")
        return f"ok {answer}\n".encode()

    def switch(self, word: str | None) -> bytes:
        """The answer to pause, resume, close and open."""
        return _NO_QUEUE if word is None else f"ok {word}\n".encode()

    def purge_queue(self, answer: tuple[int, bytes | None] | None) -> bytes:
        if answer is None:
            return _NO_QUEUE
        count, after = answer
        return f"ok {count} {'-' if after is None else after.hex()}\n".encode()
