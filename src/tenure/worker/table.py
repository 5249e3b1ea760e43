"""The channel between a worker process and its supervisor: which jobs it holds, and what it has counted.

One table a process, in memory that both map.  Its writer may be killed with SIGKILL between any two instructions, so
every step becomes true with ONE small write, made after all that belongs to it, and what is left can be counted
exactly by the supervisor.

Layout, in words of 8 bytes, in the machine's byte order:

    0        magic
    1        number of entries
    2        number of entries that were ever in use: readers look no further
    3        number of lanes
    4..12    counters, in the order of `counts.NAMES`; written by one thread of the process only
    13, 14   the supervisor's: free slots of each kind in the worker's other processes, as it saw them last
    15       the supervisor's: how many pairs of slots, one of each kind, are free in one of these processes
    16       the supervisor's: how many of its slots this process still leaves to those that it replaces
    17       when the broker last answered a take, f64, seconds of the boot clock
    18..21   the take that is open, see `open_take`
    24..     one lane a slot: how many functions it has begun
    then     entries of 16 words:
             0        byte 0: stage, byte 1: verb of the settlement, byte 2: which counter its answer moves,
                      byte 3: kind of the slot, or that its function has overrun and has none any more
             1, 2     job id
             3        hand-out number
             4, 5     what that counter, and `added`, will be once the answer is counted
             6        own deadline, f64, seconds of the boot clock
             7        visibility timeout, f64, seconds
             8        number of the take that brought it
             9, 10    the supervisor's cell: tag of a receipt, and the deadline that it extended that one to (f64)
             11       the supervisor's: tag of a receipt whose job is to be cancelled
             12, 13   the supervisor's: when it last extended what is here (f64), and the progress that it sent last
             14       when the function last asked for an extend, f64, seconds of the boot clock
             15       number of the progress in the note of this entry; odd: it is being written
    then     a note of 32 words an entry, touched only where a function says how far it is:
             0        tag of the receipt that it belongs to
             1        length of the progress in bytes
             2..      the packed progress
    then     a will for each entry, see `wills`

Stages: FREE -> HELD (its function runs) -> SETTLING (the settlement is on its way) -> SETTLED (answered, being
counted) -> FREE.  Counting an answer: which counter and its new value are written, then SETTLED, then the counter,
then FREE.  Whoever finds SETTLED sets the counter to at least that value, which does no harm when it was done before.

The supervisor writes into its cells only: tag 0, deadline, tag.  A tag belongs to one receipt, so an answer that comes
when the entry holds another job cannot lengthen that one's deadline.  A progress has a number of its own, odd while it
is written: whoever reads it looks at the number before and after, and leaves it when that was odd or has moved.
"""

from __future__ import annotations

import mmap
import os
import threading
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tenure.context import MAX_PROGRESS_BYTES
from tenure.message import Verb
from tenure.worker.counts import ADDED, NAMES, Counts
from tenure.worker.memory import anonymous_file
from tenure.worker.open_take import OpenTake
from tenure.worker.wills import WILL_WORDS, Wills, tag_of

FREE, HELD, SETTLING, SETTLED = 0, 1, 2, 3
OVERRUN = 3
"""In place of the kind of its slot: this one's function goes on after its end, and its slot is another's."""

BACKLOG = 512
"""Entries beside one a slot: settlements that wait for their answer while the slots go on."""

LOST = float("-inf")
"""The deadline of a receipt whose lease the broker has ended."""

_MAGIC = 0x54454E5552450001
_COUNT, _USED, _LANES, _COUNTERS, _ELSEWHERE, _LENT, _ANSWERED, _LANE = 1, 2, 3, 4, 13, 16, 17, 24
_WORDS = 16
_NOTE_WORDS = 32
_ID, _NUMBER, _TARGET, _TARGET_ADDED, _OWN, _VT, _TAKE, _TAG, _EXTENDED = 1, 3, 4, 5, 6, 7, 8, 9, 10
_CANCEL, _SENT_AT, _SENT, _ASKED_AT, _SAID = 11, 12, 13, 14, 15
_VERBS: tuple[Verb, ...] = ("done", "retry", "release", "dead", "cancel")
_VERB_CODES = {verb: code for code, verb in enumerate(_VERBS)}


class Entry(NamedTuple):
    """One entry as a reader saw it.

    `deadline` is the later of the process's own and the extended one, `limit` when the job's time limit is over, `take`
    the number of the take that brought it.
    """

    place: int
    stage: int
    receipt: bytes
    tag: int
    deadline: float
    visibility_timeout: float
    kind: int = 0
    limit: float = inf
    take: int = 0


@dataclass
class Surroundings:
    """What a running function may ask about its worker: whether it is leaving, and whether a slot is free."""

    stopping: bool = False
    idle: Callable[[str | None, str | None], bool] = lambda task, queue: True


class Table:
    """The table, seen from either side; the process's own verbs first, then the supervisor's."""

    def __init__(self, memory: mmap.mmap, fd: int = -1) -> None:
        self.fd = fd
        self._memory = memory
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("Q")
        self._reals = self._bytes.cast("d")
        if self._words[0] != _MAGIC:
            raise ValueError("this memory holds no table of a worker process")
        self._entries = _first_entry(self._words[_LANES])
        self._count = self._words[_COUNT]
        self._free = list(range(self._count - 1, -1, -1))
        self._index: dict[bytes, int] = {}
        self._receipts: list[bytes] = [b""] * self._count
        self._notes = self._entries + self._count * _WORDS
        first_will = self._notes + self._count * _NOTE_WORDS
        self.wills = Wills(self._bytes, self._words, self._reals, first_will)
        self.take = OpenTake(self._words, self._reals)
        self._note_lock = threading.Lock()
        self.surroundings = Surroundings()

    @classmethod
    def create(cls, slots: int, backlog: int = BACKLOG, shared: bool = True) -> Table:
        """Make an empty table for `slots` slots; `shared`: with a file descriptor to pass to a process."""
        entries = slots + backlog
        size = 8 * (_first_entry(slots) + entries * (_WORDS + _NOTE_WORDS + WILL_WORDS))
        fd = anonymous_file(size) if shared else -1
        memory = mmap.mmap(fd, size)
        words = memoryview(memory).cast("Q")
        words[_COUNT], words[_LANES], words[0] = entries, slots, _MAGIC
        words.release()
        return cls(memory, fd)

    @classmethod
    def attach(cls, fd: int) -> Table:
        """Map the table behind a file descriptor that the supervisor has passed."""
        return cls(mmap.mmap(fd, os.fstat(fd).st_size), fd)

    def close(self) -> None:
        """Unmap; the views and leases of it are of no use any more."""
        for view in (self._words, self._reals, self._bytes):
            view.release()
        self._memory.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    # The process's own verbs.

    def room(self) -> int:
        """Return how many more receipts can be held."""
        return len(self._free)

    def hold(self, receipt: bytes, deadline: float, visibility_timeout: float, kind: int = 0) -> int | None:
        """Enter a receipt as held and return its place; None when it is already here, or when there is no room.

        A receipt that is already here comes from an answer that was torn and read again: it runs or ran.
        """
        if receipt in self._index or not self._free:
            return None
        index = self._free.pop()
        base = self._entries + index * _WORDS
        byte = base * 8
        words, reals = self._words, self._reals
        self._bytes[byte + 8 : byte + 24] = unhexlify(receipt[:32])
        words[base + _NUMBER] = int(receipt[33:])
        reals[base + _OWN] = deadline
        reals[base + _VT] = visibility_timeout
        words[base + _TAKE] = self.take.number()
        if index >= words[_USED]:
            words[_USED] = index + 1
        self._index[receipt] = index
        self._receipts[index] = receipt
        self._bytes[byte + 3] = kind
        self._bytes[byte] = HELD
        return index

    def knows(self, receipt: bytes) -> bool:
        """Whether this receipt is held here, or its settlement is not answered yet."""
        return receipt in self._index

    def holds(self, receipt: bytes) -> bool:
        """Whether this receipt is here and no settlement of it is on its way."""
        index = self._index.get(receipt)
        return index is not None and self._bytes[(self._entries + index * _WORDS) * 8] == HELD

    def held(self, kind: int) -> int:
        """Return how many receipts are held for slots of this kind."""
        cells, first = self._bytes, self._entries * 8
        used = range(first, first + min(self._words[_USED], self._count) * _WORDS * 8, _WORDS * 8)
        return sum(1 for byte in used if cells[byte] == HELD and cells[byte + 3] == kind)

    def has(self, index: int, receipt: bytes) -> bool:
        """Whether this place is still, or was last, that of this receipt."""
        return self._receipts[index] == receipt

    def begin(self, lane: int) -> None:
        """Count one more function begun in this lane (its slot's thread only)."""
        self._words[_LANE + lane] += 1

    def overrun(self, index: int) -> None:
        """Say that the function has no slot any more, although it goes on."""
        self._bytes[(self._entries + index * _WORDS) * 8 + 3] = OVERRUN

    def drop(self, index: int) -> None:
        """Free an entry whose function was never started."""
        self._release(self._entries + index * _WORDS, index)

    def settling(self, index: int, verb: Verb) -> None:
        """Say that the settlement is on its way; before its first byte is written."""
        byte = (self._entries + index * _WORDS) * 8
        self._bytes[byte + 1] = _VERB_CODES[verb]
        self._bytes[byte] = SETTLING

    def settled(self, index: int, counter: int, added: int = 0) -> None:
        """Count an answer, exactly once whatever happens, and free the entry (the settler's thread only)."""
        base = self._entries + index * _WORDS
        words = self._words
        target = words[_COUNTERS + counter] + 1
        self._bytes[base * 8 + 2] = counter
        words[base + _TARGET] = target
        words[base + _TARGET_ADDED] = words[_COUNTERS + ADDED] + added
        self._bytes[base * 8] = SETTLED
        words[_COUNTERS + counter] = target
        if added:
            words[_COUNTERS + ADDED] += added
        self._release(base, index)

    def _release(self, base: int, index: int) -> None:
        # Known here under its receipt until the entry is free, so that it cannot be entered twice.
        self._bytes[base * 8] = FREE
        del self._index[self._receipts[index]]
        self._free.append(index)

    def deadline(self, index: int, tag: int) -> float:
        """Return until when the receipt with this tag may be worked on: `LOST` when its lease has ended."""
        base = self._entries + index * _WORDS
        words = self._words
        own = self._reals[base + _OWN]
        if words[base + _TAG] != tag:
            return own
        extended = self._reals[base + _EXTENDED]
        if words[base + _TAG] != tag:
            return own  # it is being written just now
        return extended if extended == LOST else max(own, extended)

    def ask(self, index: int, now: float) -> None:
        """Ask for an extend of what is here; one that comes too late for it costs the next one an extend, no more."""
        self._reals[self._entries + index * _WORDS + _ASKED_AT] = now

    def say(self, index: int, receipt: bytes, progress: bytes) -> None:
        """Note how far the job of this receipt is; does nothing when its place is another's by now."""
        if len(progress) > MAX_PROGRESS_BYTES:
            raise ValueError(f"a progress of {len(progress)} bytes; the limit is {MAX_PROGRESS_BYTES}")
        said = self._entries + index * _WORDS + _SAID
        note = self._notes + index * _NOTE_WORDS
        words = self._words
        with self._note_lock:
            if not self.has(index, receipt):
                return
            number = words[said] | 1  # odd already: this thread was stopped within
            words[said] = number
            words[note] = tag_of(receipt)
            words[note + 1] = len(progress)
            self._bytes[(note + 2) * 8 : (note + 2) * 8 + len(progress)] = progress
            words[said] = number + 1

    def cancelled(self, index: int, tag: int) -> bool:
        """Whether the job of the receipt with this tag is to be cancelled."""
        return self._words[self._entries + index * _WORDS + _CANCEL] == tag

    def free_elsewhere(self, kind: int) -> int:
        """Return how many slots of a kind (2: pairs of both) were free in the worker's other processes a moment ago."""
        return self._words[_ELSEWHERE + kind]

    def lent(self) -> int:
        """Return how many slots are not to be used yet, because processes that this one replaces still run jobs."""
        return self._words[_LENT]

    def answered(self, now: float) -> None:
        """Note that the broker has answered a take."""
        self._reals[_ANSWERED] = now

    def _receipt(self, base: int) -> bytes:
        byte = base * 8
        return b"%b:%d" % (hexlify(self._bytes[byte + 8 : byte + 24]), self._words[base + _NUMBER])

    # The supervisor's verbs (for a process without one: its keeper's).

    def entries(self) -> Iterator[Entry]:
        """Yield what is held or settling; what changes meanwhile is left out and seen the next time."""
        for index in range(min(self._words[_USED], self._count)):
            base = self._entries + index * _WORDS
            stage = self._bytes[base * 8]
            if stage in (HELD, SETTLING):
                receipt = self._receipt(base)
                tag = tag_of(receipt)
                vt = self._reals[base + _VT]
                kind = self._bytes[base * 8 + 3]
                limit = self.wills.limit(index, tag)
                take = self._words[base + _TAKE]
                entry = Entry(index, stage, receipt, tag, self.deadline(index, tag), vt, kind, limit, take)
                if self._bytes[base * 8] in (HELD, SETTLING) and self._receipt(base) == receipt:
                    yield entry

    def extend(self, entry: Entry, deadline: float) -> None:
        """Move the deadline of a receipt; does nothing to another one that has its place by now."""
        base = self._entries + entry.place * _WORDS
        self._words[base + _TAG] = 0
        self._reals[base + _EXTENDED] = deadline
        self._words[base + _TAG] = entry.tag

    def asked(self, entry: Entry) -> bool:
        """Whether the function wants an extend that has not been sent yet."""
        base = self._entries + entry.place * _WORDS
        return self._reals[base + _ASKED_AT] > self._reals[base + _SENT_AT]

    def sent_at(self, entry: Entry) -> float:
        """Return when what is here was last extended; 0.0: never."""
        return self._reals[self._entries + entry.place * _WORDS + _SENT_AT]

    def unsent(self, entry: Entry) -> tuple[int, bytes] | None:
        """Return the progress that has not been sent, with its number; None where there is none, or none whole."""
        base = self._entries + entry.place * _WORDS
        words = self._words
        number = words[base + _SAID]
        if number == words[base + _SENT] or number & 1:
            return None
        note = self._notes + entry.place * _NOTE_WORDS
        tag, length = words[note], min(words[note + 1], MAX_PROGRESS_BYTES)
        progress = bytes(self._bytes[(note + 2) * 8 : (note + 2) * 8 + length])
        return (number, progress) if words[base + _SAID] == number and tag == entry.tag else None

    def sent(self, entry: Entry, now: float, number: int | None) -> None:
        """Remember that this was extended, written at `now`, with the progress of that number (None: without)."""
        base = self._entries + entry.place * _WORDS
        self._reals[base + _SENT_AT] = now
        if number is not None:
            self._words[base + _SENT] = number

    def cancel(self, entry: Entry) -> None:
        """Tell the function that its job is to be cancelled."""
        self._words[self._entries + entry.place * _WORDS + _CANCEL] = entry.tag

    def tell_free_elsewhere(self, sync: int, coroutines: int, pairs: int = 0) -> None:
        """Tell the process how many slots of each kind, and pairs of both, are free in the worker's other processes."""
        words = self._words
        words[_ELSEWHERE], words[_ELSEWHERE + 1], words[_ELSEWHERE + 2] = sync, coroutines, pairs

    def lend(self, slots: int) -> None:
        """Tell the process how many of its slots it leaves to those that it replaces."""
        self._words[_LENT] = slots

    def answered_at(self) -> float:
        """Return when the broker last answered a take of this process; 0.0: never."""
        return self._reals[_ANSWERED]

    def lose(self, entry: Entry) -> None:
        """Tell the function that its lease has ended."""
        self.extend(entry, LOST)

    def recover(self) -> Counts:
        """Finish the counting that a process was killed in, and return its counts; the process is gone."""
        words = self._words
        for index in range(self._count):
            base = self._entries + index * _WORDS
            if self._bytes[base * 8] == SETTLED:
                counter = _COUNTERS + self._bytes[base * 8 + 2]
                words[counter] = max(words[counter], words[base + _TARGET])
                words[_COUNTERS + ADDED] = max(words[_COUNTERS + ADDED], words[base + _TARGET_ADDED])
                self._bytes[base * 8] = FREE
        return self.counts()

    def unanswered(self) -> list[bytes]:
        """Return the receipts whose settlement is on its way."""
        return [entry.receipt for entry in self.entries() if entry.stage == SETTLING]

    def only_settling(self) -> bool:
        """Whether no function runs any more and settlements wait for their answers."""
        stages = {entry.stage for entry in self.entries()}
        return stages == {SETTLING}

    def counts(self) -> Counts:
        """Return what was counted so far."""
        words = self._words
        counted = {name: words[_COUNTERS + place] for place, name in enumerate(NAMES)}
        counted["started"] = sum(words[_LANE + lane] for lane in range(words[_LANES]))
        return Counts(**counted)


def _first_entry(lanes: int) -> int:
    """Return the word at which the entries begin: lanes are rounded up so that entries keep to cache lines."""
    return _LANE + (lanes + 15) // 16 * 16
