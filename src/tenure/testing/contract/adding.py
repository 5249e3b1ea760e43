"""Adding: a job whose add was answered is there, once, and comes as it was given."""

from __future__ import annotations

from zlib import crc32

import pytest

from tenure.broker import ProducerCounts
from tenure.codec import encode_body, pack_call
from tenure.errors import MessageTooLarge
from tenure.message import DEFAULT_MAX_LOSSES, Message
from tenure.testing.contract.base import ContractPart
from tenure.testing.contract.scene import LONG, Scene, add, id_of

NAMES = {
    "colons": "a:b::c:",
    "slashes": "/a/b//c/",
    "spaces": " a  b ",
    "CJK": "注文を処理する",
    "emoji": "📦🚚💨",
    "braces": "{a}{b}",
    "wildcards": "*?[a-z]%_",
    "quotes": "a'b\"c\\d",
    "capitals": "Default",
    "300 bytes": "n" * 298 + "é",
}
"""Names that a store may take for something else."""


class AddingContract(ContractPart):
    """What was added is there once and whole, whatever it is called and however large it is."""

    def test_a_job_comes_as_it_was_added(self, scene: Scene) -> None:
        given = scene.message(
            7, task=f"shop.charge {scene.queue}", priority=5, timeout=12.5, max_attempts=3,
            max_losses=2 if scene.can.counts_losses else DEFAULT_MAX_LOSSES,
            headers={"trace": "abc", "深": [1, b"\x00\xff"]}, key="order:7" if scene.can.keys else None,
        )  # fmt: skip
        (added,) = scene.broker.add([given])
        assert (added.id, added.created, added.error) == (given.id, True, None)
        taken = scene.worker(LONG).one().message
        assert isinstance(taken, Message)
        assert taken._replace(visibility_timeout=None) == given

    def test_its_first_delivery_is_attempt_one_without_a_loss(self, scene: Scene) -> None:
        id = scene.add()
        taken = scene.worker(LONG).one()
        assert (id_of(taken), taken.attempt, taken.losses, taken.visibility_timeout) == (id, 1, 0, LONG)
        assert taken.fence >= 1
        assert type(taken.receipt) is bytes

    def test_an_add_that_is_sent_again_makes_no_second_job(self, scene: Scene) -> None:
        given = scene.message(1)
        again = [scene.broker.add([given])[0], scene.client().add([given])[0], *scene.broker.add([given, given])]
        assert {(one.id, one.created, one.error) for one in again} == {(given.id, True, None)}
        worker = scene.worker()
        assert id_of(worker.one()) == given.id
        worker.nothing()

    def test_an_add_that_is_sent_again_after_its_job_is_done_makes_no_second_job(self, scene: Scene) -> None:
        given = scene.message(1)
        scene.broker.add([given])
        worker = scene.worker()
        worker.run(worker.one())
        assert scene.client().add([given])[0].created
        worker.nothing()
        scene.state(given.id, "done")

    def test_many_are_added_in_one_call_and_answered_in_order(self, scene: Scene) -> None:
        messages = [scene.message(number) for number in range(scene.can.max_batch + 50)]
        ids = scene.add_all(messages)
        worker = scene.worker()
        came = worker.collect(len(ids))
        assert sorted(map(id_of, came)) == sorted(ids)
        assert len({delivery.receipt for delivery in came}) == len(ids)

    def test_no_messages_have_no_answers(self, scene: Scene) -> None:
        assert scene.broker.add([]) == []

    def test_one_that_is_refused_does_not_stop_the_others(self, scene: Scene) -> None:
        large = _of_size(scene, scene.can.max_body + 1)
        first, refused, last = add(scene.broker, [scene.message(1), large, scene.message(2)])
        assert (first.created, refused.created, last.created) == (True, False, True)
        assert isinstance(refused.error, MessageTooLarge)
        assert (refused.error.size, refused.error.limit) == (scene.can.max_body + 1, scene.can.max_body)
        worker = scene.worker()
        assert sorted(map(id_of, worker.collect(2))) == sorted([first.id, last.id])
        worker.nothing()

    @pytest.mark.parametrize("less", [0, 1])
    def test_a_job_of_the_largest_size_comes_whole(self, scene: Scene, less: int) -> None:
        given = _of_size(scene, scene.can.max_body - less)
        scene.add_all([given])
        taken = scene.worker().one().message
        assert isinstance(taken, Message)
        assert taken.args == given.args

    def test_one_take_of_many_large_jobs_brings_them_all_in_the_end(self, scene: Scene) -> None:
        large = [_of_size(scene, scene.can.max_body // 4 + number) for number in range(20)]
        ids = scene.add_all(large)
        assert sorted(map(id_of, scene.worker().collect(len(ids)))) == sorted(ids)

    def test_arguments_may_be_any_bytes(self, scene: Scene) -> None:
        args = bytes(range(256)) * 3 + b"\r\n\x00END\r\n$-1\r\n"
        scene.add_all([scene.message()._replace(args=args, checksum=crc32(args))])
        taken = scene.worker().one().message
        assert isinstance(taken, Message)
        assert taken.args == args

    @pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
    def test_queues_tasks_and_keys_may_have_any_name(self, scene: Scene, name: str) -> None:
        queue = f"{name}{scene.queue}"
        given = scene.message(1, queue=queue, task=queue, key=name if scene.can.keys else None)
        other = scene.message(2, queue=queue, task=name)
        scene.add_all([given, other])
        worker = scene.worker(queues=[queue])
        first, second = (delivery.message for delivery in worker.collect(2))
        assert isinstance(first, Message)
        assert isinstance(second, Message)
        taken = {one.id: (one.queue, one.task, one.key) for one in (first, second)}
        assert taken == {one.id: (one.queue, one.task, one.key) for one in (given, other)}

    def test_queues_whose_names_are_nearly_one_are_two(self, scene: Scene) -> None:
        base = scene.queue
        names = [base, f"{base}:", f":{base}", base.upper(), f"{base} ", f"{base}*", f"{base}:ready", f"{{{base}}}"]
        ids = {name: scene.add(queue=name) for name in names}
        for name in names:
            worker = scene.worker(queues=[name])
            assert id_of(worker.one()) == ids[name]
            worker.nothing(0.05)

    def test_the_producer_counts_what_its_adds_came_to(self, scene: Scene) -> None:
        given = scene.message(1)
        scene.add_all([given, *(scene.message(number) for number in range(2, 5))])
        scene.broker.add([given])
        # The same line again is neither a new job nor a duplicate.
        assert scene.broker.counts().added >= 4
        assert scene.client().counts() == ProducerCounts(0, 0, 0)


def _of_size(scene: Scene, size: int) -> Message:
    """A message whose packed part has so many bytes."""
    plain = scene.message()
    rest = size - len(encode_body(plain._replace(args=pack_call((b"\x00" * 70_000,), {})))) + 70_000
    for length in range(max(0, rest - 8), rest + 8):
        args = pack_call((b"\x00" * length,), {})
        made = plain._replace(args=args, checksum=crc32(args))
        if len(encode_body(made)) == size:
            return made
    raise AssertionError(f"no message has {size} bytes")
