"""The people of a test: a producer and an operator (`Scene`) and workers (`Worker`), all through the seam alone."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from zlib import crc32

from tenure.broker import Added, Admin, Broker, Consumer, Keeper, ResultStore, Settled
from tenure.codec import fingerprint, pack_call
from tenure.errors import BrokerUnavailable
from tenure.ids import new_id
from tenure.message import Delivery, Message, Settlement, Verb
from tenure.testing.contract.site import Address, BrokerSite

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds within which whatever has to come must have come; generous, for a machine that does other things too."""
LONG = 30.0
"""A visibility timeout (seconds) that does not run out in any test."""
SHORT = 1.0
"""A visibility timeout (seconds) that a test waits for."""


def eventually(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Return the first true value of `condition`; fails, saying `what`, where there is none within `seconds`."""
    __tracebackhide__ = True
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
    return value


def insist(call: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return what `call` does, repeating it for `seconds` while the connection breaks."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except ConnectionError:
            if time.monotonic() > end:
                raise
        time.sleep(random.uniform(0.01, 0.05))  # noqa: S311  (no secret)


def message(queue: str, task: str, number: int = 0, **fields: Any) -> Message:
    """Return a new job for `queue`; two of one `number` and `task` are the same call."""
    args = pack_call((number,), {})
    words = {"args": args, "checksum": crc32(args), "fingerprint": fingerprint(task, (number,), {}), **fields}
    return Message(id=words.pop("id", None) or new_id(), task=task, queue=queue, **words)


def add(broker: Broker, messages: Sequence[Message]) -> list[Added]:
    """Add messages, sending the same lines again for as long as the broker does not confirm them."""
    try:
        return broker.add(messages)
    except BrokerUnavailable as error:
        unconfirmed = error
    return insist(unconfirmed.resend)


class Insistent:
    """Verbs that are each repeated while the connection breaks."""

    def __init__(self, verbs: object) -> None:
        self._verbs = verbs

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb: Callable[..., Any] = getattr(self._verbs, name)
        return lambda *args, **words: insist(lambda: verb(*args, **words))


def id_of(delivery: Delivery) -> str:
    """Return the id of a delivered job."""
    return delivery.message.id


class Worker:
    """A worker process's session: takes and settles, again wherever the connection breaks."""

    def __init__(self, broker: Broker, queues: Sequence[str], visibility_timeout: float, name: str) -> None:
        self.session = secrets.token_hex(16)
        self.name = name
        self.consumer: Consumer = broker.consumer(
            queues, session=self.session, name=name, visibility_timeout=visibility_timeout
        )

    def take(self, limit: int = 1, wait: float = 0.0, queues: Sequence[str] | None = None) -> list[Delivery]:
        """Take up to `limit` jobs."""
        return insist(lambda: self.consumer.take(limit, wait, queues))

    def collect(self, count: int, seconds: float = PATIENCE) -> list[Delivery]:
        """Take until there are `count` jobs; fails where they do not come within `seconds`."""
        __tracebackhide__ = True
        found: list[Delivery] = []
        end = time.monotonic() + seconds
        while len(found) < count:
            left = end - time.monotonic()
            assert left > 0, f"{len(found)} of {count} jobs came within {seconds:g} s"
            found += self.take(count - len(found), min(left, 0.5))
        return found

    def one(self, seconds: float = PATIENCE) -> Delivery:
        """Take one job; fails where none comes within `seconds`."""
        __tracebackhide__ = True
        (delivery,) = self.collect(1, seconds)
        return delivery

    def nothing(self, seconds: float = 0.15) -> None:
        """Fail where a job comes within `seconds`."""
        __tracebackhide__ = True
        came = [(id_of(delivery), delivery.receipt) for delivery in self.take(10, seconds)]
        assert came == [], f"no job was to come, and there came {came}"

    def settle(self, *settlements: Settlement) -> list[Settled]:
        """Settle, and return the answers in order."""
        return insist(lambda: self.consumer.settle(settlements))

    def end(self, delivery: Delivery, kind: Verb = "done", **fields: Any) -> Settled:
        """Settle one delivery."""
        (settled,) = self.settle(Settlement(delivery.receipt, kind, **fields))
        return settled

    def run(self, delivery: Delivery, kind: Verb = "done", **fields: Any) -> None:
        """Settle one delivery; fails where the broker does not take it."""
        __tracebackhide__ = True
        settled = self.end(delivery, kind, **fields)
        assert settled.answer == "ok", f"{kind} of {delivery.receipt!r} was answered {settled}"


class Scene:
    """One test's queue and clients; `close` closes them all.  `broker` is a producer's and operator's client."""

    def __init__(self, site: BrokerSite, through: dict[Address, Address] | None = None) -> None:
        self.site = site
        self.through = through
        self.insistent = False
        self.queue = f"contract-{secrets.token_hex(6)}"
        self.task = f"{self.queue}.task"
        self._brokers: list[Broker] = []
        self._closing: list[Consumer | Keeper] = []
        self.broker = self.client()
        self.can = self.broker.capabilities
        self.denied = ""
        """What the test has found that the broker, or its site, cannot do: a capability, or a method of the site."""

    # -- who takes part

    def client(self) -> Broker:
        """Return a further broker, as another process would open it."""
        broker = self.site.broker(self.through)
        self._brokers.append(broker)
        return broker

    def worker(
        self,
        visibility_timeout: float = LONG,
        queues: Sequence[str] = (),
        broker: Broker | None = None,
        name: str = "contract",
    ) -> Worker:
        """Return a worker of this test's queue, in a process of its own."""
        worker = Worker(broker or self.client(), queues or [self.queue], visibility_timeout, name)
        self._closing.append(worker.consumer)
        return worker

    def keeper(self) -> Keeper:
        """Return a keeper in a process of its own."""
        keeper = self.client().keeper()
        self._closing.append(keeper)
        return self._insistent(keeper)

    @property
    def results(self) -> ResultStore:
        """Return the results of a broker that keeps them."""
        results = self.broker.results()
        assert results is not None, "results() is None, though the capabilities say keeps_results"
        return self._insistent(results)

    @property
    def admin(self) -> Admin:
        """Return the operator's verbs of a broker that has them."""
        admin = self.broker.admin()
        assert admin is not None, "admin() is None, though the capabilities say operated"
        return self._insistent(admin)

    def _insistent(self, verbs: T) -> T:
        """Where connections are broken on purpose, every line is sent again until it is answered."""
        return cast("T", Insistent(verbs)) if self.insistent else verbs

    # -- what they do

    def message(self, number: int = 0, **fields: Any) -> Message:
        """Return a new job of this test's queue and task; two of one `number` are the same call."""
        return message(fields.pop("queue", self.queue), fields.pop("task", self.task), number, **fields)

    def add(self, number: int = 0, **fields: Any) -> str:
        """Add a new job and return its id; fails where the broker did not make it."""
        __tracebackhide__ = True
        (id,) = self.add_all([self.message(number, **fields)])
        return id

    def add_all(self, messages: Sequence[Message]) -> list[str]:
        """Add new jobs in one call and return their ids; fails where the broker did not make all of them."""
        __tracebackhide__ = True
        answers = add(self.broker, messages)
        refused = [answer for answer in answers if answer.error is not None or not answer.created]
        assert refused == [], f"not made: {refused[:3]}"
        assert [answer.id for answer in answers] == [one.id for one in messages], "answers come in another order"
        return [answer.id for answer in answers]

    def state(self, id: str, expected: str) -> None:
        """Fail where a job is in another state than expected; a broker that keeps no results is asked nothing."""
        __tracebackhide__ = True
        if not self.can.keeps_results:
            assert self.broker.results() is None, "results() is there, and the capabilities do not say keeps_results"
            return
        found = self.results.states([id])[0]
        assert found.state == expected, f"job {id} is {found.state}, and has to be {expected}: {found}"

    def check_counts(self, **expected: int) -> None:
        """Fail where the record of this test's queue says something else; a broker that keeps none is asked nothing."""
        __tracebackhide__ = True
        if self.can.operated and self.can.keeps_record:
            counts = self.counts()
            assert {name: counts[name] for name in expected} == expected

    def counts(self) -> dict[str, int]:
        """Return the record's counts of this test's queue, the hand-outs' ends named like `/done`."""
        row = self.admin.record()["queues"].get(self.queue, {})
        flat = {name: n for name, n in row.items() if isinstance(n, int)}
        return flat | {f"/{name}": n for name, n in row.get("handouts", {}).items()}

    def close(self) -> None:
        """Close all clients."""
        for one in self._closing:
            one.close()
        for broker in self._brokers:
            broker.close()
