"""What is told of a job whose own process was gone before it could: read from the broker's answers, once."""

from __future__ import annotations

import logging
from typing import Any
from zlib import crc32

import pytest

from tenure.broker import Settled
from tenure.codec import encode_body
from tenure.message import Delivery, Message, Raw, Settlement
from tenure.worker.orphans import Orphans, end_of
from tenure.worker.patience import Patience
from tenure.worker.settler import Finished
from tests.property.lab import Lab, Line, hexid, session_of
from tests.unit.worker_fakes import HandClock, message

BYE = f"bye {session_of(1)} lost SIGKILL"
WAIT = 10.0


def taken(lab: Lab, options: str = "", body: str = "body") -> Line:
    """The line of a worker that has taken job number 1."""
    worker = lab.connect(1)
    worker.ask(lab.add(1, options, body=body))
    lab.pass_time(0.2)
    worker.ask("take 1 1 0 30000 q")
    lab.pass_time(1.0)
    return worker


def receipt(number: int = 1) -> bytes:
    return f"{hexid(1)}:{number}".encode()


def told(lab: Lab, number: int = 1) -> tuple[Finished, Settled] | None:
    return end_of(lab.job(1), receipt(number))


@pytest.mark.parametrize(
    ("lines", "options", "answer", "reason", "attempt", "delay"),
    [
        ([f"done {hexid(1)}:1"], "", "done", "", 1, 0.0),
        ([f"retry {hexid(1)}:1 7000 timeout 0\n"], "", "scheduled", "timeout", 1, 7.0),
        ([f"retry {hexid(1)}:1 7000 timeout 0\n"], "ma=1", "dead", "timeout", 1, 0.0),
        ([f"dead {hexid(1)}:1 no%20use 4\nerr!"], "", "dead", "no use", 1, 0.0),
        ([f"cancel {hexid(1)}:1 not%20wanted"], "", "cancelled", "not wanted", 1, 0.0),
        ([f"release {hexid(1)}:1 5000 snooze"], "", "released", "snooze", 1, 5.0),
        ([BYE], "ml=1", "dead", "worker lost (SIGKILL)", 1, 0.0),
        ([f"cancel-job {hexid(1)}", BYE], "", "cancelled", "cancelled while it ran", 1, 0.0),
    ],
)
def test_each_end_is_told_as_its_process_would_have(
    lab: Lab, lines: list[str], options: str, answer: str, reason: str, attempt: int, delay: float
) -> None:
    worker = taken(lab, options)
    for line in lines:
        worker.ask(line)
    found = told(lab)
    assert found is not None
    finished, settled = found
    assert settled == Settled("ok", answer)
    assert (finished.settlement.reason, finished.attempt, finished.settlement.delay) == (reason, attempt, delay)
    assert (finished.task, finished.queue, finished.key, finished.seconds) == ("t", "q", hexid(1), 1.0)
    assert (finished.delivery is not None) == (answer == "dead")


def test_what_goes_back_is_told_to_nobody(lab: Lab) -> None:
    worker = taken(lab)
    worker.ask(BYE)
    assert told(lab) is None
    assert told(lab, number=2) is None


def test_what_ends_later_in_the_queue_is_not_the_doing_of_a_process(lab: Lab) -> None:
    worker = taken(lab, "x=+2000")
    worker.ask(BYE)
    lab.pass_time(2.0)
    assert lab.job(1)["reason"] == "expired"
    assert told(lab) is None


def test_an_earlier_attempt_is_told_with_its_own_number(lab: Lab) -> None:
    worker = taken(lab)
    worker.ask(f"retry {hexid(1)}:1 0 first 0\n")
    lab.pass_time(0.2)
    worker.ask("take 2 1 0 30000 q")
    worker.ask(f"retry {hexid(1)}:2 9000 second 0\n")
    ends = [told(lab, number) for number in (1, 2)]
    seen = [(end[0].attempt, end[0].settlement.reason, end[0].settlement.delay) for end in ends if end is not None]
    assert seen == [(1, "first", 0.0), (2, "second", 9.0)]


def test_a_dead_job_comes_with_its_arguments(lab: Lab) -> None:
    sent = message(args=(42,), timeout=3.0)
    sent = sent._replace(checksum=crc32(sent.args))
    body = encode_body(sent)
    worker = lab.connect(1)
    worker.write(f"add {hexid(1)} q t {'f' * 32} {len(body)} k=mine ml=1\n".encode() + body + b"\n")
    worker.write(b"take 1 1 0 30000 q\n")
    lab.turn()
    worker.read()
    worker.ask(BYE)
    found = told(lab)
    assert found is not None
    delivery = found[0].delivery
    assert delivery is not None
    assert (delivery.fence, delivery.attempt, delivery.losses, delivery.visibility_timeout) == (1, 1, 1, 30.0)
    assert isinstance(delivery.message, Message)
    assert (delivery.message.args, delivery.message.timeout, delivery.message.key) == (sent.args, 3.0, "mine")


def test_bytes_that_are_no_message_are_given_as_they_are(lab: Lab) -> None:
    worker = taken(lab, "ml=1", body="none")
    worker.ask(BYE)
    found = told(lab)
    assert found is not None
    assert found[0].delivery is not None
    assert isinstance(found[0].delivery.message, Raw)


class Rig:
    """A process that is named hand-outs of another one, with a broker that is a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.fails: list[Exception] = []
        self.heard: list[str] = []
        self.clock = HandClock()
        self.orphans = Orphans(
            self,  # type: ignore[arg-type]  # nothing else is asked of it
            Patience(self.clock, lambda: 1.0),
            self._died,
            self._answered,
        )

    def admin(self) -> Any:
        return self

    def job(self, id: str) -> dict[str, Any] | None:
        if self.fails:
            raise self.fails.pop()
        return self._lab.engine.show(bytes.fromhex(id))

    def _died(self, delivery: Delivery, settlement: Settlement) -> None:
        self.heard.append(f"dead {delivery.receipt.decode()} {settlement.reason}")

    def _answered(self, finished: Finished, answer: Settled) -> None:
        self.heard.append(f"{answer.detail} {finished.task}")


def test_it_asks_the_broker_and_tells_hooks_and_subscribers(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    worker = taken(lab, "ml=1")
    worker.ask(BYE)
    rig = Rig(lab)
    rig.fails = [ValueError("no sense"), ConnectionError("away"), ConnectionError("away")]
    unknown = receipt().replace(b"01", b"02", 1)
    with caplog.at_level(logging.INFO, "tenure.worker"):
        for named in (receipt(), unknown, receipt()):
            rig.orphans.put(named)
        rig.orphans.close(WAIT)
    assert rig.heard == ["dead t", f"dead {hexid(1)}:1 worker lost (SIGKILL)"]
    assert len(rig.clock.waits) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"the connection failed while asking what became of job {hexid(1)} (away); trying again",
        f"nobody is told what became of job {hexid(1)}",
        f"the broker answers again; asking what became of job {hexid(1)} goes on",
        f"dead t {hexid(1)} attempt 1 after 1.000 s: worker lost (SIGKILL)",
    ]


def test_a_broker_without_operators_verbs_leaves_nothing_to_tell(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(lab)
    monkeypatch.setattr(rig, "admin", lambda: None)
    rig.orphans.put(receipt())
    rig.orphans.close(WAIT)
    assert rig.heard == []


def test_one_that_leaves_while_the_broker_is_away_waits_no_longer(lab: Lab) -> None:
    rig = Rig(lab)
    rig.fails = [ConnectionError("away") for _ in range(1_000_000)]
    rig.orphans.put(receipt())
    rig.orphans.close(0.01)
    assert rig.orphans._thread is not None
    rig.orphans._thread.join(WAIT)
    assert not rig.orphans._thread.is_alive()
    assert rig.heard == []


def test_a_process_that_leaves_without_having_been_told_of_any_has_no_thread(lab: Lab) -> None:
    rig = Rig(lab)
    rig.orphans.close(WAIT)
    assert rig.orphans._thread is None
