"""A broker that keeps messages in a list and answers as it is told."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.broker import Added, Admin, Capabilities, Consumer, Keeper, ProducerCounts, ResultStore
from tenure.errors import BrokerUnavailable
from tenure.message import Message


class FakeBroker:
    """Answers each add with `created`, or with what `refuse` says for the task's name.

    The next `unavailable` calls of add, and of resend, raise BrokerUnavailable.
    """

    def __init__(self) -> None:
        self.calls: list[list[Message]] = []
        self.refuse: dict[str, Exception] = {}
        self.existing: dict[str, str] = {}
        self.unavailable = 0
        self.closed = 0

    @property
    def messages(self) -> list[Message]:
        return [message for call in self.calls for message in call]

    @property
    def last(self) -> Message:
        return self.messages[-1]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(max_body=1 << 20, max_batch=1000)

    def add(self, messages: Sequence[Message]) -> list[Added]:
        if self.unavailable:
            self.unavailable -= 1
            first = messages[0]
            raise BrokerUnavailable("no answer", first.id, first.key or first.id, lambda: self.add(messages))
        self.calls.append(list(messages))
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Added:
        first = self.existing.get(message.key or "")
        if first is not None:
            return Added(first, False)
        error = self.refuse.get(message.task)
        return Added(message.id, error is None, error)

    def counts(self) -> ProducerCounts:
        return ProducerCounts(len(self.messages), 0, 0)

    def consumer(self, queues: Sequence[str], *, session: str, name: str, visibility_timeout: float) -> Consumer:
        raise NotImplementedError

    def keeper(self) -> Keeper:
        raise NotImplementedError

    def results(self) -> ResultStore | None:
        return None

    def admin(self) -> Admin | None:
        return None

    def close(self) -> None:
        self.closed += 1
