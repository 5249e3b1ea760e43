"""Bytes that are no message: they reach nobody as a job, stop nobody, and an operator can look at them."""

from __future__ import annotations

import pytest

from tenure.codec import encode_body
from tenure.message import Message, Raw
from tenure.testing.contract.base import ContractPart
from tenure.testing.contract.scene import Scene, id_of

GARBAGE = {
    "empty": b"",
    "text": b"not a message",
    "zeros": b"\x00" * 64,
    "half a message": b"\x95\x01\xc4\x05ab",
    "line ends": b"\r\n$-1\r\n*0\r\n",
    "a false length": b"\xdd\xff\xff\xff\xff",
}
NEWER = b"\x93\x7f\x01\x02"
"""The beginning of a body in a layout that is not there yet."""


class GarbageContract(ContractPart):
    """What does not read as a message comes as `Raw` with the reason, and never stops what stands behind it."""

    @pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
    def test_garbage_comes_raw_and_stops_nobody(self, scene: Scene, data: bytes) -> None:
        injected = scene.site.inject_garbage(scene.queue, data)
        scene.denied = "" if injected else "inject_garbage"
        id = scene.add()
        worker = scene.worker()
        came = worker.collect(2 if injected else 1)
        raw = [one for one in came if isinstance(one.message, Raw)]
        assert [id_of(one) for one in came if isinstance(one.message, Message)] == [id]
        assert len(raw) == (1 if injected else 0)
        for one in raw:
            assert isinstance(one.message, Raw)
            assert (one.message.body, one.message.queue, one.message.version) == (data, scene.queue, None)
            assert one.message.why
            worker.run(one, "dead", reason="bad bytes", ran=False)
            if scene.can.operated:
                (entry,) = scene.admin.dead(scene.queue, 10, None)
                assert (bytes.fromhex(entry["body"]), entry["reason"]) == (data, "bad bytes")
        worker.nothing()

    def test_a_newer_layout_says_its_version_and_can_be_given_back(self, scene: Scene) -> None:
        if not scene.site.inject_garbage(scene.queue, NEWER):
            scene.denied = "inject_garbage"
            scene.add_all([scene.message()])
            assert encode_body(scene.message())[1] == 1
            return
        worker = scene.worker()
        taken = worker.one()
        assert isinstance(taken.message, Raw)
        assert (taken.message.version, taken.message.body) == (127, NEWER)
        worker.run(taken, "release")
        again = scene.worker().one()
        assert (again.attempt, again.losses) == (1, 0)
