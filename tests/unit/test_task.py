"""What a call of a task becomes, and which functions can be tasks."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any
from zlib import crc32

import pytest

from tenure import App, Backoff, ConfigError, NotSerializable, TaskDefinitionError
from tenure.codec import fingerprint, unpack_call
from tests.unit import pooled
from tests.unit.fake_broker import FakeBroker

MISSING = object()


def charge(order_id: int, cents: int = 1, note: str = "") -> str:
    """Take the money."""
    return f"{order_id}:{cents}{note}"


def test_a_task_is_still_its_function(app: App) -> None:
    task = app.task(charge)
    assert task(42, note="x") == "42:1x"
    assert (task.__name__, task.__doc__, task.name) == ("charge", "Take the money.", f"{__name__}.charge")
    assert repr(task) == f"<Task {__name__}.charge>"


def test_delay_makes_the_message(app: App, broker: FakeBroker) -> None:
    job = app.task(charge).delay(42, cents=999)
    message = broker.last
    assert unpack_call(message.args) == ((42,), {"cents": 999})
    assert message.checksum == crc32(message.args)
    assert (job.id, job.key, job.created) == (message.id, message.id, True)
    assert (job.task, job.queue) == (f"{__name__}.charge", "default")
    assert (message.priority, message.max_attempts, message.max_losses, message.timeout) == (5, 20, 5, None)


def test_options_of_the_task_reach_the_message(app: App, broker: FakeBroker) -> None:
    task = app.task(
        name="pay",
        queue="billing",
        priority=9,
        max_attempts=3,
        max_losses=2,
        visibility_timeout=timedelta(minutes=1),
        backoff=Backoff(2, 3, 60),
    )(charge)
    assert (task.name, task.queue, task.backoff) == ("pay", "billing", Backoff(2, 3, 60))
    task.delay(1)
    message = broker.last
    assert (message.task, message.queue, message.priority) == ("pay", "billing", 9)
    assert (message.max_attempts, message.max_losses) == (3, 2)
    assert (message.visibility_timeout, message.timeout) == (60.0, None)


def test_one_call_has_one_fingerprint_however_it_is_written(app: App, broker: FakeBroker) -> None:
    task = app.task(charge)
    for args, kwargs in [
        ((42, 1, ""), {}),
        ((42,), {}),
        ((42, 1), {"note": ""}),
        ((), {"note": "", "order_id": 42}),
        ((), {"order_id": 42, "cents": 1}),
    ]:
        task.delay(*args, **kwargs)  # type: ignore[arg-type]
    assert {message.fingerprint for message in broker.messages} == {fingerprint(task.name, (42, 1, ""), {})}
    task.delay(42, 2)
    assert broker.last.fingerprint != broker.messages[0].fingerprint


def test_the_slow_way_gives_the_same_fingerprint_as_the_fast_one(app: App, broker: FakeBroker) -> None:
    def many(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: Any) -> None: ...

    task = app.task(many)
    task.delay(1, 2, c=3)
    task.delay(1)
    task.delay(1, b=2)
    assert len({message.fingerprint for message in broker.messages}) == 1
    task.delay(1, 2, 5, x=1, y={"k": 1, "j": 2})
    task.delay(1, 2, 5, y={"j": 2, "k": 1}, x=1, c=3)
    assert broker.messages[-1].fingerprint == broker.messages[-2].fingerprint
    assert broker.messages[-1].fingerprint != broker.messages[0].fingerprint


def test_a_default_without_wire_form_can_stay(app: App, broker: FakeBroker) -> None:
    def find(name: str, fallback: Any = MISSING, limit: int = 3) -> None: ...

    task = app.task(find)
    task.delay("x")
    task.delay("x", limit=3)
    assert broker.messages[0].fingerprint == broker.messages[1].fingerprint
    assert unpack_call(broker.last.args) == (("x",), {"limit": 3})
    with pytest.raises(NotSerializable, match=r"args\[1\] is a object"):
        task.delay("x", object())


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'order_id'"),
        ((1, 2, "", 4), {}, "too many positional arguments"),
        ((1,), {"pennies": 2}, "got an unexpected keyword argument 'pennies'"),
        ((1, 2), {"order_id": 1}, "multiple values for argument 'order_id'"),
    ],
)
def test_a_wrong_call_is_refused_at_the_call(
    app: App, broker: FakeBroker, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    task = app.task(charge)
    for call in (task.delay, task.s, task.options(priority=1).delay, task.options(priority=1).s):
        with pytest.raises(TypeError, match=rf"charge\(\) {text}"):
            call(*args, **kwargs)
    with pytest.raises(TypeError):
        task.check(args, kwargs)
    assert broker.messages == []


def test_an_argument_without_wire_form_is_named(app: App) -> None:
    with pytest.raises(NotSerializable, match=r"kwargs\['note'\] is a object"):
        app.task(check=False)(charge).delay(1, note=object())  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ keys


def test_the_task_derives_the_key_from_all_arguments(app: App, broker: FakeBroker) -> None:
    task = app.task(key=lambda order_id, cents, note: f"order:{order_id}/{cents}/{note}")(charge)
    for job in (task.delay(42), task.delay(order_id=42), task.delay(42, 1, note="")):
        assert job.key == "order:42/1/"
    assert broker.last.key == "order:42/1/"
    assert task.options(key="own").delay(42).key == "own"


def test_an_existing_job_comes_back(app: App, broker: FakeBroker) -> None:
    broker.existing["k"] = "0" * 32
    job = app.task(charge).options(key="k").delay(1)
    assert (job.id, job.key, job.created) == ("0" * 32, "k", False)


def test_a_key_function_that_fails_names_its_task(app: App) -> None:
    def broken(order_id: int, cents: int, note: str) -> str:
        raise LookupError("no order")

    with pytest.raises(LookupError) as caught:
        app.task(key=broken, name="broken")(charge).delay(1)
    assert caught.value.__notes__ == ["raised by key= of task broken"]
    for value in (42, None, "", "a\n", "x" * 600):
        task = app.task(key=lambda *args, value=value: value, name=f"t{value!r:.8}")(charge)
        with pytest.raises(ConfigError, match=r"key= of task t"):
            task.delay(1)


def test_a_key_function_of_other_parameters_is_refused_at_definition(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match=r"key= of task .*charge has to take what the task takes"):
        app.task(key=lambda order_id: "x")(charge)
    with pytest.raises(TaskDefinitionError, match=r"task.options\(key=...\)"):
        app.task(key="order:1")  # type: ignore[call-overload]


# ----------------------------------------------------------------------------------------------------- definitions


async def stream() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (stream, "async generator function.*return a list"),
        (generator, "generator function.*return a list"),
        (App, "goes on a function, not on <class"),
        (42, "goes on a function, not on 42"),
    ],
)
def test_what_cannot_run_is_refused_at_definition(app: App, function: Any, text: str) -> None:
    with pytest.raises(TaskDefinitionError, match=text):
        app.task(function)
    with pytest.raises(TaskDefinitionError, match=text):
        app.task(queue="x")(function)


def test_a_task_of_a_task_is_refused(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match="is a task already"):
        app.task(app.task(charge))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"max_retry": 3}, "Did you mean 'max_attempts'"),
        ({"max_retries": 3}, "max_retries=3 is max_attempts=4"),
        ({"acks_late": True}, "always acknowledged"),
        ({"bind": True}, "current_job"),
        ({"priority": 11}, "priority=11"),
        ({"queue": ""}, "queue"),
        ({"backoff": 3}, "Backoff"),
        ({"timeout": 0}, "timeout=0 is not possible"),
        ({"time_limit": 10}, "no option time_limit=; here it is timeout="),
        ({"max_losses": 0}, "max_losses=0"),
        ({"max_attempts": None}, "max_attempts=None"),
    ],
)
def test_a_wrong_option_is_refused_before_there_is_a_function(app: App, words: dict[str, Any], text: str) -> None:
    with pytest.raises(TaskDefinitionError, match=text):
        app.task(**words)


def test_a_wrong_name_is_refused(app: App) -> None:
    with pytest.raises(TaskDefinitionError, match="task name"):
        app.task(name="a\nb")(charge)
    with pytest.raises(TaskDefinitionError, match="name="):
        app.task(lambda: None)


def test_a_task_is_pickled_by_its_place_and_runs_in_a_pool_of_processes() -> None:
    for task in (pooled.charge, pooled.under_another_name):
        assert pickle.loads(pickle.dumps(task)) is task
        assert copy.copy(task) is copy.deepcopy(task) is task
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(pooled.charge, 6, 7).result(30) == 42


def test_a_task_that_is_not_here_says_what_to_import(app: App) -> None:
    packed = pickle.dumps(app.task(name="here")(charge))
    assert pickle.loads(packed) is app.tasks["here"]
    app._tasks.clear()
    with pytest.raises(ConfigError, match=r"task here was pickled, and no app named 'shop'.* import its module"):
        pickle.loads(packed)


def test_a_signature_is_pickled_with_its_task() -> None:
    call = pooled.charge.s(6, 7).options(queue="x")
    assert pickle.loads(pickle.dumps(call)) == call


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        (
            (1,),
            {"cent": 2},
            r"charge\(\) missing .*'cents', and got an unexpected keyword argument 'cent'. Did you mean 'cents'\?$",
        ),
        ((1, 2), {"cent": 2}, r"got an unexpected keyword argument 'cent'. Did you mean 'cents'\?$"),
        ((1,), {}, r"charge\(\) missing a required argument: 'cents'$"),
    ],
)
def test_a_wrong_keyword_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        pooled.charge.s(*args, **kwargs)
