"""Lines that wait: takes for a job, waits for the end of jobs, and what ends their waiting."""

from __future__ import annotations

from typing import Any

from tenure.engine.adding import Created
from tenure.engine.engine import Engine
from tenure.server.answers import Answers
from tenure.server.crowd import Crowd
from tenure.server.parking import Parking
from tenure.server.session import Connection, Parked, ParkedWait
from tenure.server.verbs import Verb
from tenure.wire import encode
from tenure.wire.commands import MAX_WAIT, OVER, Add, Bye, Take, Untake, Wait


class WaitingLines:
    """Parks lines and answers them, into `replies`; `table` has the verbs that park or unpark.

    What the transaction under way has parked and unparked can be taken back with it: see `begin` and `undo`.
    """

    def __init__(self, engine: Engine, answers: Answers, crowd: Crowd, replies: list[tuple[Connection, bytes]]) -> None:
        self._engine = engine
        self._answers = answers
        self._crowd = crowd
        self._replies = replies
        self.parking = Parking()
        engine.watch(self.parking.jobs)
        self._changes: list[tuple[bool, Parked | ParkedWait]] = []  # (parked or unparked, line)
        self._alone = False
        self.table: dict[type, Verb] = {
            Add: self._add,
            Take: self._take,
            Wait: self._wait,
            Bye: self._bye,
            Untake: self._untake,
        }

    # -- the hub's ------------------------------------------------------------------------------------------------

    def begin(self, lines: int) -> None:
        """A transaction of so many lines begins."""
        self._changes.clear()
        self._alone = lines == 1

    def undo(self) -> None:
        """Take back what has been parked and unparked since it began."""
        for parked, line in reversed(self._changes):
            (self.parking.remove if parked else self.parking.restore)(line)

    def added_now(self, a: Add, wall: int, mono: float) -> bytes | None:
        """Carry out an add that has no turn; None, with nothing changed, where a take waits and needs one."""
        return self._hand_over(a, wall, mono) if self.parking else self._answers.add(self._engine.add(a, wall))

    def serve(self, wall: int, mono: float) -> None:
        """Answer those for which there is something now."""
        if self.parking:  # else what has become ready is found by the next take itself
            for queue in self._engine.woken():
                for parked in self.parking.waiting(queue):
                    if not self._engine.has_ready(queue):
                        break
                    self.answer(parked, wall, mono, final=False)
        ended = self._engine.ended()
        if ended:
            for waiting in self.parking.met(ended):
                self.answer(waiting, wall, mono, final=False)

    def end_those_over(self, wall: int, mono: float) -> None:
        """Answer those whose time is over."""
        deadline = self.parking.next_deadline()
        if deadline is not None and deadline <= mono:
            for parked in self.parking.over(mono):
                self.answer(parked, wall, mono, final=True)

    def end_all(self, wall: int, mono: float) -> None:
        """Answer every wait with what is known now, and every take empty."""
        for waiting in self.parking.waits():
            self.answer(waiting, wall, mono, final=True)
        for parked in self.parking:
            self.parking.remove(parked)
            self._replies.append((parked.connection, encode.jobs([])))

    def answer(self, parked: Parked | ParkedWait, wall: int, mono: float, *, final: bool) -> None:
        """Answer a line if there is something for it, or in any case when that is `final`."""
        if isinstance(parked, ParkedWait):
            packed = self._states(parked.wait, wall, final)
        else:
            packed = self._taken(parked, wall, mono, final)
        if packed is not None:
            self._answered(parked, packed, mono)

    def _answered(self, parked: Parked | ParkedWait, packed: bytes, mono: float) -> None:
        self._unpark(parked)
        parked.connection.last_line = mono  # it was not idle while it waited
        self._replies.append((parked.connection, packed))

    # -- adds ----------------------------------------------------------------------------------------------------

    def _add(self, connection: Connection, a: Add, arrived: float, wall: int, mono: float) -> bytes:
        # Where there are more lines, whoever waits longest is to have as many of their jobs as it asked for.
        handed_over = self._hand_over(a, wall, mono) if self._alone and self.parking else None
        return handed_over or self._answers.add(self._engine.add(a, wall))

    def _hand_over(self, a: Add, wall: int, mono: float) -> bytes | None:
        """Store a job, answer with it the take that waits longest, and return the add's own answer.

        None, with nothing changed: that cannot be done in one.
        """
        parked = self.parking.longest_waiting(a.queue)
        if parked is None:
            return None
        hello = parked.connection.hello
        assert hello is not None  # it could not have parked
        job = self._engine.hand_over(
            a, hello.session, hello.name, parked.take, arrived=parked.arrived, wall=wall, mono=mono
        )
        if job is None:
            return None
        self._answered(parked, encode.jobs([job]), mono)
        return self._answers.add(Created(a.id))

    # -- takes ----------------------------------------------------------------------------------------------------

    def _take(self, connection: Connection, t: Take, arrived: float, wall: int, mono: float) -> bytes | None:
        hello = connection.hello
        assert hello is not None  # checked in _apply
        if connection.gone:
            return None  # nobody would read the answer; the repeat on a new connection is answered
        older = self.parking.of_session(hello.session)
        if older is not None and t.number >= older.take.number:
            self._unpark(older)
            self._replies.append((older.connection, encode.err("stale", "a newer copy of this take came")))
        elif older is not None:
            return encode.err("stale", "a later take of this session is waiting")
        answer = self._engine.take(
            hello.session, hello.name, t, arrived=arrived, wall=wall, mono=mono, final=t.wait == 0
        )
        if answer is None:
            parked = Parked(connection, t, arrived, arrived + min(t.wait, MAX_WAIT) / 1000)
            self.parking.add(parked)
            self._changes.append((True, parked))
            return None
        return _take_answer(answer)

    def _taken(self, parked: Parked, wall: int, mono: float, final: bool) -> bytes | None:
        hello = parked.connection.hello
        assert hello is not None  # it could not have parked
        answer = self._engine.take(
            hello.session, hello.name, parked.take, arrived=parked.arrived, wall=wall, mono=mono, final=final
        )
        return None if answer is None else _take_answer(answer)

    # -- waits ----------------------------------------------------------------------------------------------------

    def _wait(self, connection: Connection, w: Wait, arrived: float, wall: int, mono: float) -> bytes | None:
        packed = self._states(w, wall, w.wait == 0)
        if packed is None and not connection.gone:
            parked = ParkedWait(
                connection, w, self._engine.jobs_of(w.ids), arrived, arrived + min(w.wait, MAX_WAIT) / 1000
            )
            self.parking.add(parked)
            self._changes.append((True, parked))
        return packed

    def _states(self, w: Wait, wall: int, final: bool) -> bytes | None:
        """The answer to a wait; None while none of its jobs is over, unless it is `final`."""
        states = self._engine.states(w.ids, wall)
        return encode.states(states) if final or any(line.state in OVER for line in states) else None

    # -- what ends a wait -----------------------------------------------------------------------------------------

    def _bye(self, connection: Connection, b: Bye, arrived: float, wall: int, mono: float) -> bytes:
        parked = self.parking.of_session(b.session)
        if parked is not None:
            self._unpark(parked)
            self._replies.append((parked.connection, encode.err("closed", "this session has said bye")))
        self._crowd.spoken_for(b.session, mono)
        return self._answers.bye(self._engine.bye(b, wall))

    def _untake(self, connection: Connection, u: Untake, arrived: float, wall: int, mono: float) -> bytes:
        parked = self.parking.of_session(u.session)
        if parked is not None and parked.take.number <= u.number:
            self._unpark(parked)
            self._replies.append((parked.connection, encode.jobs([])))
        self._crowd.spoken_for(u.session, mono)
        self._engine.untake(u, wall)
        return b"ok\n"

    def _unpark(self, parked: Parked | ParkedWait) -> None:
        self.parking.remove(parked)
        self._changes.append((False, parked))


def _take_answer(answer: Any) -> bytes:
    if answer == "closed":
        return encode.err("closed", "this session has said bye")
    if answer == "stale":
        return encode.err("stale", "a later take of this session was answered")
    return encode.jobs(answer)
