"""Tasks that are defined before there is an app."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest

from tenure import App, ConfigError, TaskDefinitionError, TaskGroup
from tenure.testing import InlineWorker, inline_worker
from tests.unit.fake_broker import FakeBroker

mail = TaskGroup(prefix="mail")


@mail.task
def send(to: str) -> str:
    return to.upper()


@pytest.fixture
def worker() -> Iterator[InlineWorker]:
    with inline_worker(App("shop", broker="tenure://127.0.0.1:1")) as worker:
        yield worker


def made() -> tuple[TaskGroup, App]:
    return TaskGroup("mail"), App("shop", broker=FakeBroker(), routes={"mail.*": "mails"})


def test_a_group_brings_its_tasks_to_an_app_with_the_apps_routes(worker: InlineWorker) -> None:
    group = TaskGroup("mail")

    @group.task
    def welcome(to: str) -> str:
        return f"hello {to}"

    @group.task(name="bye", queue="late", aliases=["old.bye"])
    async def leave(to: str) -> str:
        return f"bye {to}"

    app = worker.app
    app.add_group(group)
    assert sorted(app.tasks) == [
        "mail.bye",
        f"mail.{test_a_group_brings_its_tasks_to_an_app_with_the_apps_routes.__name__}.<locals>.welcome",
        "old.bye",
    ]
    jobs = [welcome.delay("ann"), leave.delay("bob")]
    worker.run_all()
    assert [job.result(timeout=0) for job in jobs] == ["hello ann", "bye bob"]
    assert leave.queue == "late"


def test_routes_and_later_tasks() -> None:
    group, app = made()
    first = group.task(name="a")(lambda: None)
    app.add_group(group)
    later = group.task(name="b")(lambda x: None)
    assert (first.queue, later.queue, later.delay(1).queue) == ("mails", "mails", "mails")
    app.add_group(group)  # once more: nothing new
    assert sorted(app.tasks) == ["mail.a", "mail.b"]


def test_without_an_app_the_function_runs_and_everything_else_says_what_is_missing() -> None:
    assert send("ann") == "ANN"
    assert repr(send) == "<Task mail.send>"
    uses: list[Callable[[], object]] = [
        lambda: send.delay("ann"),
        lambda: send.s("ann").delay(),
        lambda: send.options(priority=1).delay("ann"),
    ]
    for use in uses:
        with pytest.raises(ConfigError, match=r"<TaskGroup mail: 1 tasks> have no app yet.*app\.add_group\(group\)"):
            use()


def test_a_task_of_a_group_is_pickled_by_its_place() -> None:
    app = App("pickled", broker=FakeBroker())
    app.add_group(mail)
    try:
        assert pickle.loads(pickle.dumps(send)) is send
    finally:
        mail._app = None


def test_a_group_has_one_app() -> None:
    group, app = made()
    app.add_group(group)
    with pytest.raises(ConfigError, match=r"belongs to <App shop: 0 tasks>; make another group for <App web"):
        App("web", broker=FakeBroker()).add_group(group)
    with pytest.raises(ConfigError, match="takes a TaskGroup, not 'mail'"):
        app.add_group("mail")  # type: ignore[arg-type]


def test_names_that_meet_in_the_app_are_refused() -> None:
    group, app = made()
    app.task(name="mail.a")(lambda: None)
    group.task(name="0")(lambda: None)
    group.task(name="a")(lambda x: None)
    with pytest.raises(TaskDefinitionError, match=r"two tasks have the name mail\.a"):
        app.add_group(group)
    assert sorted(app.tasks) == ["mail.a"]
    App("other", broker=FakeBroker()).add_group(group)  # it belongs to nobody yet


def test_a_prefix_and_names_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="prefix"):
        TaskGroup("x" * 513)
    with pytest.raises(TaskDefinitionError, match="no name of its own"):
        TaskGroup("mail").task(lambda: None)
    assert TaskGroup().task(send.fn).name == f"{__name__}.send"
