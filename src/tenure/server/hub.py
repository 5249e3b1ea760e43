"""The server without sockets: bytes in, bytes out, both times passed in.

Everything that arrived since the last turn is applied in one transaction; only after its commit are the answers put
to the connections.  The asyncio shell in `server.py` and the tests drive this same object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tenure.engine.engine import Engine
from tenure.engine.store import DbError
from tenure.server.answers import Answers
from tenure.server.crowd import Crowd, Limits
from tenure.server.reports import Reports, as_json, recount
from tenure.server.session import Adds, Arrived, Connection, Settles, together
from tenure.server.shortage import Shortage
from tenure.server.undone import UndoneTurns
from tenure.server.verbs import Verb, Verbs
from tenure.server.waits import WaitingLines
from tenure.wire import encode
from tenure.wire.commands import (
    Add,
    Bad,
    Browse,
    Command,
    Extend,
    Hello,
    Report,
    Show,
    Wait,
)

GAP = 1.0
"""Seconds without a turn after which the server counts as having been away: all leases get their full time again."""
TICK = 0.25
LOOK_AGAIN = 0.005
"""Seconds between seeing that a lease is over and ending it: the sockets are read once more in between."""
SWEEP_PAUSE = 0.02
AT_ONCE = 64
"""Adds between two turns that may have been carried out without one."""
EXPIRE_PERIOD = 0.25
"""Seconds between two looks for jobs that wait past their latest start; takes look for themselves."""
GIVE_UP = 3
"""Transactions in a row that the store may refuse before what would write is refused unasked."""
REST = 0.5
"""Seconds until the store is tried again then: each undoing reads the whole file, and extends have to be answered."""
READING = (Hello, Extend, Show, Browse, Report, Wait, Bad)
"""Lines that write nothing, so that a full disk does not stop them: leases go on being extended."""

_HELLO_FIRST = encode.err("hello-first", "say hello before anything else")

log = logging.getLogger("tenure.server")


class Hub:
    """All connections over one engine; what goes past the `limits` is answered with `err`."""

    def __init__(self, engine: Engine, *, answers: Answers, mono: float, limits: Limits | None = None) -> None:
        self._engine = engine
        self._crowd = Crowd(limits or Limits(), engine.sessions(), mono)
        self.behind: dict[Connection, None] = {}
        """Whose lines have been read and not carried out yet."""
        self._replies: list[tuple[Connection, bytes]] = []
        self._waiting = WaitingLines(engine, answers, self._crowd, self._replies)
        self._parking = self._waiting.parking
        self._reports = Reports(engine, self._parking)
        self._answers = answers
        self._at_once = AT_ONCE
        self._failing = False  # the last transaction was undone
        self._refused = 0  # transactions in a row that the store did not take
        self._rest_until = mono
        self._undone = UndoneTurns()
        self._shortage = Shortage(engine)
        self._unsound = False
        self._questions: list[Connection] = []
        self.background: list[tuple[Connection, Callable[[], dict[str, Any]]]] = []
        """Answers to be made outside of the loop; the shell passes what they return to `finish`."""
        self._seen = mono
        engine.renew_leases(mono)  # reading the file may have taken long
        self._run_out_before: float | None = None
        self._next_check = mono + 1.0
        self._next_sweep = self._next_expiry = mono
        self._apply_one: dict[type, Verb] = {
            **Verbs(engine, answers, self._crowd, self._reports).table,
            **self._waiting.table,
            Report: self._report,
        }

    # -- connections ----------------------------------------------------------------------------------------------

    def open(self, mono: float) -> Connection:
        """A new connection; above the limit it is answered `err limit` and to be closed."""
        return self._crowd.open(mono)

    def receive(self, connection: Connection, data: bytes, mono: float) -> bool:
        """Take bytes that have been read by `mono`; True when a turn is wanted."""
        if connection.gone or not connection.feed(data, mono):
            return False
        self.behind[connection] = None
        return not connection.waits

    def add_at_once(self, connection: Connection, data: bytes, wall: int, mono: float) -> list[Connection]:
        """Carry out what is one plain add, and return the connections with answers; none: it goes the common way.

        A turn that is for a single add costs several times what the add does.  What time brings has its turn by the
        timer, and what else a turn looks after each time that `AT_ONCE` adds have come so.  Where takes wait, it is
        for an add only that one of them can be answered with.
        """
        if self._at_once <= 0 or self.behind or self._failing or not connection.is_at_rest:
            return []
        command = connection.parser.plain_add(data)
        if command is None:
            return []
        self._waiting.begin(1)
        try:
            answer = self._waiting.added_now(command, wall, mono)
            if answer is None:
                return []
            self._engine.commit()
        except Exception:  # noqa: BLE001  (the common way meets it again and tells)
            self._undo(0, 0, mono)
            return []
        self._at_once -= 1
        connection.last_line = mono
        self._replies.append((connection, answer))
        return self._deliver()

    def unread(self, connection: Connection, mono: float) -> None:
        """The client does not read its answers: its lines wait until it does."""
        connection.unread_since = mono

    def read_on(self, connection: Connection) -> None:
        """The client has read what was left unread; its lines come up in the next turn."""
        connection.unread_since = None

    def ends(self, connection: Connection) -> None:
        """The client has said all, and its connection is about to go: nothing more is given to it."""
        if connection.parked is not None:
            self._parking.remove(connection.parked)

    def lost(self, connection: Connection, mono: float) -> None:
        """The connection is gone, and what it has parked with it; what had arrived is still carried out."""
        connection.unread_since = None
        if self._crowd.lose(connection, mono):
            self.ends(connection)

    def connections(self) -> list[Connection]:
        """All connections that are open."""
        return list(self._crowd)

    # -- the turn -------------------------------------------------------------------------------------------------

    def turn(self, wall: int, mono: float) -> list[Connection]:
        """Apply what has arrived and what time has brought, commit, and return the connections with answers."""
        if self.was_away(mono):
            log.warning(
                "the server was away for %.1f s; every running lease has its full time again", mono - self._seen
            )
            self._engine.renew_leases(mono)
            self._run_out_before = None
        self._seen = mono
        self._at_once = AT_ONCE
        self._shortage.look(mono)
        inbox = self._shares()
        if mono < self._rest_until or not self._attempt(inbox, wall, mono):
            self._one_by_one(inbox, wall, mono)
        if mono >= self._next_check:
            self._next_check = mono + 1.0
            self._undone.tell(mono)
            self._check_connections(mono)
        if self._questions:
            self._ask_snapshots(mono)
        return self._deliver()

    def _shares(self) -> list[Arrived]:
        """The lines of this turn; the rest of them waits for the next."""
        arrived, self.behind = self.behind, {}
        inbox: list[Arrived] = []
        for connection in arrived:
            inbox += connection.share()
            if connection.lines:
                self.behind[connection] = None
        return inbox

    def _one_by_one(self, inbox: list[Arrived], wall: int, mono: float) -> None:
        """Carry out the lines of an undone turn each for itself, so that only what cannot be done is refused.

        What time brings comes last and alone: it may be what fails.  After a few that the store did not take, the
        others that would write are refused unasked, in this turn and until the store has had its rest.
        """
        reading = (*READING, Add) if self._engine.space.full else READING
        for connection, command, arrived in inbox:
            given_up = self._refused >= GIVE_UP and not isinstance(command, reading)
            if given_up or not self._attempt([(connection, command, arrived)], wall, mono, time=False):
                self._replies.append((connection, encode.err("storage", self._fault)))
        if self._refused < GIVE_UP:
            self._attempt([], wall, mono)
        elif mono >= self._rest_until:
            self._rest_until = mono + REST

    def _attempt(self, inbox: list[Arrived], wall: int, mono: float, *, time: bool = True) -> bool:
        """Carry out one transaction; False, with nothing changed, when the store or the code failed."""
        replies, questions = len(self._replies), len(self._questions)
        self._waiting.begin(len(inbox))
        try:
            if self._unsound:
                self._engine.rollback(mono)
                self._unsound = False
            for connection, command, arrived in together(inbox):
                self._apply(connection, command, arrived, wall, mono)
            if time:
                self._pass_time(wall, mono)
            self._waiting.serve(wall, mono)
            if self._engine.commit():
                self._refused = 0
        except Exception as error:  # noqa: BLE001  (told in the log, with its traceback where it is a fault of ours)
            self._fault = f"{error}; nothing was done, send the line again later"
            self._undone.note(len(inbox), error, mono)
            self._shortage.met(error, mono)
            self._undo(replies, questions, mono)
            self._failing = True
            self._refused += 1
            return False
        self._failing = False
        return True

    def _undo(self, replies: int, questions: int, mono: float) -> None:
        """Take back what an attempt did, in the engine and here; `replies` and `questions` is how many were before."""
        del self._replies[replies:]
        for asking in self._questions[questions:]:
            asking.busy = False
        del self._questions[questions:]
        self._waiting.undo()
        self._roll_back(mono)

    def _roll_back(self, mono: float) -> None:
        """Undo what the engine did; where even that fails, the next attempt begins with another try."""
        self._failing = self._unsound = True  # until the engine's books are read anew, they are ahead of the file
        try:
            self._engine.rollback(mono)
        except DbError:
            log.exception("the store cannot even be read; every turn begins with another try")
        else:
            self._unsound = False

    def _ask_snapshots(self, mono: float) -> None:
        """Open what the long answers are made from, at the commit of this turn."""
        for connection in self._questions:
            try:
                self.background.append((connection, partial(recount, *self._engine.snapshot())))
            except DbError as error:
                log.error("no snapshot for a recount: %s", error)
                self.finish(connection, None, mono)
                self._replies.append((connection, b""))  # `finish` has put the answer; this has it written
        self._questions.clear()

    def _deliver(self) -> list[Connection]:
        touched: dict[Connection, None] = {}
        for connection, answer in self._replies:
            if not connection.gone:
                connection.out.append(answer)
                touched[connection] = None
        self._replies.clear()
        return list(touched)

    def _apply(
        self, connection: Connection, command: Command | Adds | Settles, arrived: float, wall: int, mono: float
    ) -> None:
        if connection.parked is not None:
            self._waiting.answer(connection.parked, wall, mono, final=True)
        if connection.hello is None and type(command) not in (Hello, Bad):
            lines = len(command.lines) if isinstance(command, Adds | Settles) else 1
            self._replies.append((connection, _HELLO_FIRST * lines))
            return
        answer = self._apply_one[type(command)](connection, command, arrived, wall, mono)
        if answer is not None:
            self._replies.append((connection, answer))

    def _pass_time(self, wall: int, mono: float) -> None:
        self._engine.promote(wall)
        if self._run_out_before is not None:
            self._engine.run_out(self._run_out_before, wall)
            self._run_out_before = None
        end = self._engine.next_lease_end()
        if end is not None and end <= mono:
            self._run_out_before = mono
        self._waiting.end_those_over(wall, mono)
        if self._engine.late or mono >= self._next_expiry:
            self._next_expiry = mono + EXPIRE_PERIOD  # as below
            self._engine.expire(wall)
        if mono >= self._next_sweep:
            self._next_sweep = mono + 1.0  # also when the sweep fails: it must not fail every turn
            self._engine.sweep(wall, mono)
            if self._engine.sweeping:
                self._next_sweep = mono + SWEEP_PAUSE

    def _check_connections(self, mono: float) -> None:
        for connection, why in self._crowd.overdue(mono):
            self._replies.append((connection, encode.err("timeout", why)))
        self._crowd.forget_sessions(self._engine.forget_session, mono)

    def was_away(self, mono: float) -> bool:
        """Whether the next turn finds that the server stood still: what has arrived has to be read before it."""
        return mono - self._seen > GAP

    @property
    def ends_leases(self) -> bool:
        """Whether the next turn ends leases: what has arrived has to be read before it."""
        return self._run_out_before is not None

    def next_wake(self, wall: int, mono: float) -> float:
        """Monotonic seconds at which the next turn is wanted, whatever arrives."""
        wake = mono + TICK
        if any(not connection.waits for connection in self.behind):
            return mono
        if self._failing or mono < self._rest_until:
            return wake  # what is due cannot be done now; no use in asking all the time
        if self._engine.late:
            return mono
        if self._run_out_before is not None:
            wake = mono + LOOK_AGAIN
        end, deadline, due = self._engine.next_lease_end(), self._parking.next_deadline(), self._engine.next_due()
        if end is not None:
            wake = min(wake, max(end, mono + LOOK_AGAIN))
        if deadline is not None:
            wake = min(wake, deadline)
        if due is not None:
            wake = min(wake, mono + max(0, due - wall) / 1000)
        if self._engine.sweeping:
            wake = min(wake, self._next_sweep)
        return max(wake, mono)

    def finish(self, connection: Connection, answer: dict[str, Any] | None, mono: float) -> list[Connection]:
        """Put an answer that was made in the background; its connection's other lines come up in the next turn."""
        packed = encode.err("storage", "the recount failed") if answer is None else as_json(answer)
        if not connection.gone:
            connection.out.append(packed)
        connection.busy = False
        return [connection]

    def drain(self, wall: int, mono: float) -> list[Connection]:
        """Answer every parked take, empty, and every wait with what is known now, before the server ends."""
        touched = self.turn(wall, mono)
        self._waiting.end_all(wall, mono)
        return list(dict.fromkeys(touched + self._deliver()))

    def _report(self, connection: Connection, r: Report, arrived: float, wall: int, mono: float) -> bytes | None:
        if r.what == "record":
            return self._reports.record()
        if r.what == "queues":
            return self._reports.queues(wall)
        connection.busy = True
        self._questions.append(connection)
        return None
