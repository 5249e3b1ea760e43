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
    16..     one lane a slot: how many functions it has begun
    then     entries of 16 words:
             0        byte 0: stage, byte 1: verb of the settlement, byte 2: which counter its answer moves
             1, 2     job id
             3        hand-out number
             4, 5     what that counter, and `added`, will be once the answer is counted
             6        own deadline, f64, seconds of the boot clock
             7        visibility timeout, f64, seconds
             8        end of the time limit with its grace, f64, seconds of the boot clock; 0: no limit
             9, 10    the supervisor's cell: tag of a receipt, and the deadline that it extended that one to (f64)

Stages: FREE -> HELD (its function runs) -> SETTLING (the settlement is on its way) -> SETTLED (answered, being
counted) -> FREE.  Counting an answer: which counter and its new value are written, then SETTLED, then the counter,
then FREE.  Whoever finds SETTLED sets the counter to at least that value, which does no harm when it was done before.

The supervisor writes into its cell only: tag 0, deadline, tag.  A tag belongs to one receipt, so an answer that comes
when the entry holds another job cannot lengthen that one's deadline.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from binascii import hexlify, unhexlify
from collections.abc import Iterator
from typing import NamedTuple

from tenure.message import Verb
from tenure.worker.counts import ADDED, NAMES, Counts

FREE, HELD, SETTLING, SETTLED = 0, 1, 2, 3
BACKLOG = 512
"""Entries beside one a slot: settlements that wait for their answer while the slots go on."""

LOST = float("-inf")
"""The deadline of a receipt whose lease the broker has ended."""

_MAGIC = 0x54454E5552450001
_COUNT, _USED, _LANES, _COUNTERS, _LANE = 1, 2, 3, 4, 16
_WORDS = 16
_BYTES = 8 * _WORDS
_ID, _NUMBER, _TARGET, _TARGET_ADDED, _OWN, _VT, _LIMIT, _TAG, _EXTENDED = 1, 3, 4, 5, 6, 7, 8, 9, 10
_VERBS: tuple[Verb, ...] = ("done", "retry", "release", "dead", "cancel")
_VERB_CODES = {verb: code for code, verb in enumerate(_VERBS)}
_MASK = (1 << 64) - 1


class Entry(NamedTuple):
    """One entry as a reader saw it; `deadline` is the later of the process's own and the extended one."""

    place: int
    stage: int
    receipt: bytes
    tag: int
    deadline: float
    visibility_timeout: float
    limit: float


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

    @classmethod
    def create(cls, slots: int, backlog: int = BACKLOG, shared: bool = True) -> Table:
        """Make an empty table for `slots` slots; `shared`: with a file descriptor to pass to a process."""
        entries = slots + backlog
        size = 8 * (_first_entry(slots) + entries * _WORDS)
        fd = _anonymous_file(size) if shared else -1
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

    def hold(self, receipt: bytes, deadline: float, visibility_timeout: float, limit: float = 0.0) -> int | None:
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
        reals[base + _LIMIT] = limit
        if index >= words[_USED]:
            words[_USED] = index + 1
        self._index[receipt] = index
        self._receipts[index] = receipt
        self._bytes[byte] = HELD
        return index

    def knows(self, receipt: bytes) -> bool:
        """Whether this receipt is held here, or its settlement is not answered yet."""
        return receipt in self._index

    def holds(self, receipt: bytes) -> bool:
        """Whether this receipt is here and no settlement of it is on its way."""
        index = self._index.get(receipt)
        return index is not None and self._bytes[(self._entries + index * _WORDS) * 8] == HELD

    def has(self, index: int, receipt: bytes) -> bool:
        """Whether this place is still, or was last, that of this receipt."""
        return self._receipts[index] == receipt

    def begin(self, lane: int) -> None:
        """Count one more function begun in this lane (its slot's thread only)."""
        self._words[_LANE + lane] += 1

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
                vt, limit = self._reals[base + _VT], self._reals[base + _LIMIT]
                entry = Entry(index, stage, receipt, tag, self.deadline(index, tag), vt, limit)
                if self._bytes[base * 8] in (HELD, SETTLING) and self._receipt(base) == receipt:
                    yield entry

    def extend(self, entry: Entry, deadline: float) -> None:
        """Move the deadline of a receipt; does nothing to another one that has its place by now."""
        base = self._entries + entry.place * _WORDS
        self._words[base + _TAG] = 0
        self._reals[base + _EXTENDED] = deadline
        self._words[base + _TAG] = entry.tag

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


class Lease:
    """The hold on one delivery, as the running function may ask for it."""

    __slots__ = ("_index", "_receipt", "_table", "_tag")

    def __init__(self, table: Table, index: int, receipt: bytes) -> None:
        self._table = table
        self._index = index
        self._receipt = receipt
        self._tag = tag_of(receipt)

    def deadline(self) -> float | None:
        """Return the own deadline, extensions included, in seconds of the boot clock; None when the lease is lost."""
        if not self._table.has(self._index, self._receipt):
            return None  # asked after the job's end, by a thread that it left behind
        deadline = self._table.deadline(self._index, self._tag)
        return None if deadline == LOST else deadline


def tag_of(receipt: bytes) -> int:
    """Return the tag of a receipt: never 0, and another one for every receipt that an entry will ever hold."""
    mixed = int(receipt[16:32], 16) + int(receipt[33:]) * 0x9E3779B97F4A7C15
    return (mixed & _MASK) or 1


def _first_entry(lanes: int) -> int:
    """Return the word at which the entries begin: lanes are rounded up so that entries keep to cache lines."""
    return _LANE + (lanes + 15) // 16 * 16


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tenure-table", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
