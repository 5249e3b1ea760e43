"""How long the operator's questions wait for their answers."""

from __future__ import annotations

from tenure.brokers.operating import RECOUNT_LIMIT, ServerAdmin
from tenure.wire.replies import Reply


class Waits:
    """A line that is silent at first, and notes how long it was waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def exchange(self, data: bytes, answers: int, wait: float = 0.0) -> list[Reply]:
        self.waits.append(wait)
        if len(self.waits) == 1:
            raise ConnectionError("silence")
        return [Reply(b"json 2", b"{}")]


def test_a_recount_is_waited_for_and_the_record_is_not() -> None:
    for verify, wait in ((True, RECOUNT_LIMIT), (False, 0.0)):
        line = Waits()
        assert ServerAdmin(line).record(verify=verify) == {}
        assert line.waits == [wait, wait]
