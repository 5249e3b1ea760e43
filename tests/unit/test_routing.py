"""Which queue a job waits in, and jobs that are added by the name of their task alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenure import App, ConfigError, Job, WrongArgument
from tenure.testing import InlineWorker, inline_worker
from tenure.worker.worker import queue_warnings
from tests.unit.fake_broker import FakeBroker

PATTERNS = {"mail.*": "mail", "mail.bulk": "slow", "*.report": "reports"}


def by_size(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    return "large" if args and args[0] > 100 else None


def queue_of(app: App, name: str, *args: Any, **words: Any) -> str:
    """Return the queue that a job of this task is added to."""
    return app.send(name, args, **words).queue


def app_with(routes: Any) -> App:
    return App("shop", broker=FakeBroker(), routes=routes)


def test_the_whole_name_comes_before_patterns_and_these_in_their_order() -> None:
    app = app_with(PATTERNS)
    names = ["mail.send", "mail.bulk", "mail.report", "shop.report", "shop.charge", "Mail.send"]
    assert [queue_of(app, name) for name in names] == ["mail", "slow", "mail", "reports", "default", "default"]


def test_the_call_says_it_before_the_task_and_the_task_before_the_routes() -> None:
    app = app_with({"*": "routed"})

    @app.task(name="a")
    def plain() -> None: ...

    @app.task(name="b", queue="own")
    def own() -> None: ...

    assert (plain.queue, own.queue) == ("routed", "own")
    assert app.queues() == ["own", "routed"]
    assert [plain.delay().queue, own.delay().queue] == ["routed", "own"]
    assert [task.options(queue="asked").delay().queue for task in (plain, own)] == ["asked", "asked"]
    added = app.add_many([plain.s(), own.s()])
    assert [one.queue for one in added if isinstance(one, Job)] == ["routed", "own"]


def test_a_function_sees_each_call_and_the_first_rule_that_says_something_decides() -> None:
    app = app_with([by_size, {"work": "small"}])

    @app.task(name="work")
    def work(size: int) -> None: ...

    assert work.queue == "small"
    assert [work.delay(size).queue for size in (1, 101)] == ["small", "large"]
    assert [queue_of(app, "other", 101), queue_of(app, "other", 1)] == ["large", "default"]
    assert work.options(queue="asked").delay(101).queue == "asked"


def test_a_worker_warns_of_queues_that_only_a_function_knows() -> None:
    app = app_with(by_size)
    app.task(name="work")(lambda size: None)
    assert any("--queues" in line for line in queue_warnings(app, app.queues()))
    assert not any("routes=" in line for line in queue_warnings(app, ["default", "large"]))
    assert not any("routes=" in line for line in queue_warnings(app_with(PATTERNS), ["default"]))


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ("mail", r"routes= takes a dict.*'mail' is none of them"),
        ([{"a": 3}], r"queue in routes has to be a str, not int: 3"),
        ({3: "a"}, r"3 is no task's name and no pattern"),
        ({"": "a"}, r"'' is no task's name"),
        (App, r"is none of them"),
    ],
)
def test_routes_that_cannot_be_are_refused_at_the_app(routes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        app_with(routes)


def test_a_function_that_returns_no_queue_or_raises_is_named() -> None:
    broken = app_with(lambda task, args, kwargs: 7)
    with pytest.raises(ConfigError, match=r"routes= returned 7 for task work: queue has to be a str"):
        broken.send("work")

    def raises(task: str, args: Any, kwargs: Any) -> str:
        raise LookupError("no such customer")

    with pytest.raises(LookupError) as caught:
        app_with(raises).send("work")
    assert caught.value.__notes__ == ["raised by a function in routes= for task work"]


@pytest.fixture
def worker() -> Iterator[InlineWorker]:
    with inline_worker(App("shop", broker="tenure://127.0.0.1:1")) as worker:
        yield worker


def test_a_name_is_enough_to_add_a_job(worker: InlineWorker) -> None:
    caller = App("web", broker=worker.broker)
    job = caller.send("shop.add", [1], {"b": 2}, priority=9, delay=5)
    assert (job.task, job.created) == ("shop.add", True)
    worker.app.task(name="shop.add")(lambda a, b: a + b)
    worker.clock.move(5.1)
    assert worker.run_all() == 1
    assert job.result(timeout=0) == 3
    assert asyncio.run(caller.asend("shop.add", (1, 2))).created
    with pytest.raises(ConfigError, match="task name"):
        caller.send("")


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (3, None, r"args=3 has to be a list or a tuple.*app\.send\('k', \(3,\)\)$"),
        ("abc", None, r"args='abc' has to be.*app\.send\('k', \('abc',\)\)$"),
        (b"abc", None, r"args=b'abc' has to be"),
        (None, None, r"args=None has to be"),
        ({1, 2}, None, r"args=\{1, 2\} has to be"),
        ({"order": 7}, None, r"is a dict; named arguments come third: app\.send\('k', \(\), \{'order': 7\}\)$"),
        ((), 3, r"kwargs=3 has to be a dict.*app\.send\('k', \(\), \{'order_id': 42\}\)$"),
        ((), [1], r"kwargs=\[1\] has to be a dict"),
        ((), {1: 2}, r"kwargs=\{1: 2\} has to be a dict from names"),
    ],
)
def test_arguments_that_are_not_in_a_list_are_refused_with_the_right_form(args: Any, kwargs: Any, said: str) -> None:
    app = app_with(None)
    with pytest.raises(TypeError, match=said):
        app.send("k", args, kwargs)
    with pytest.raises(TypeError, match=said):
        asyncio.run(app.asend("k", args, kwargs))
    assert app.counts.added == 0


def test_a_task_that_is_here_checks_its_arguments_and_has_its_own_options() -> None:
    broker = FakeBroker()
    app = App("shop", broker=broker)

    @app.task(name="charge", queue="billing", key=lambda order: f"order:{order}")
    def charge(order: int) -> None: ...

    job = app.send("charge", [7])
    assert (job.queue, job.key) == ("billing", "order:7")
    with pytest.raises(WrongArgument):
        app.send("charge", ["seven"])
    with pytest.raises(TypeError, match="charge"):
        app.send("charge", [7], {"order": 8})


def test_the_same_call_with_and_without_the_code_is_one_job_for_a_key(worker: InlineWorker) -> None:
    worker.app.task(name="charge")(lambda order, cents=1: None)
    first = worker.app.tasks["charge"].options(key="k").delay(7, 1)
    again = App("web", broker=worker.broker).send("charge", (7, 1), key="k")
    assert (again.id, again.created) == (first.id, False)


def test_both_names_of_a_renamed_task_run(worker: InlineWorker) -> None:
    seen = []
    before = App("old", broker=worker.broker).send("shop.old_name", [1])

    @worker.app.task(name="shop.new_name", aliases=["shop.old_name", "shop.older"])
    def work(number: int) -> int:
        seen.append(number)
        return number

    after = work.delay(2)
    by_alias = worker.app.send("shop.older", [3])
    assert (before.task, after.task, by_alias.task) == ("shop.old_name", "shop.new_name", "shop.new_name")
    worker.run_all()
    assert seen == [1, 2, 3]
    assert worker.app.job(before.id).result(timeout=0) == 1


def test_an_alias_that_is_another_tasks_name_is_refused() -> None:
    app = App("shop", broker=FakeBroker())
    app.task(name="a", aliases=["b"])(lambda: None)
    with pytest.raises(TypeError, match="two tasks have the name b"):
        app.task(name="b")(lambda x: None)
    with pytest.raises(TypeError, match="two tasks have the name a"):
        app.task(name="c", aliases=["a"])(lambda x, y: None)
    assert "c" not in app.tasks
    with pytest.raises(TypeError, match=r"aliases='b' has to be a list of names"):
        app.task(name="d", aliases="b")
