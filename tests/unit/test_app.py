"""The app: its tasks and queues, many adds at once, and its broker."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure import AddError, App, BrokerUnavailable, ConfigError, Job, KeyConflict, MessageTooLarge, TaskDefinitionError
from tenure.brokers import server
from tenure.errors import ServerError
from tests.unit.fake_broker import FakeBroker


def charge(order_id: int, cents: int = 1) -> str:
    return f"{order_id}:{cents}"


def mail(to: str) -> None: ...


def test_tasks_and_queues(app: App) -> None:
    assert dict(app.tasks) == {}
    assert app.queues() == []
    task = app.task(queue="mails")(mail)
    app.task(name="a", queue="billing")(charge)
    assert app.queues() == ["billing", "mails"]
    app.task(charge)
    assert app.queues() == ["default", "billing", "mails"]
    assert app.tasks[f"{__name__}.mail"] is task
    with pytest.raises(TypeError):
        app.tasks["x"] = task  # type: ignore[index]


def test_two_functions_with_one_name_are_refused(app: App) -> None:
    app.task(name="same")(charge)
    with pytest.raises(TaskDefinitionError, match=r"two tasks have the name same.*test_app\.py, line \d+") as caught:
        app.task(name="same")(mail)
    assert "@app.task(name=...)" in str(caught.value)
    app.task(name="same", queue="x")(charge)  # the same function once more, as a reload does it
    assert app.tasks["same"].queue == "x"


def test_a_module_that_is_loaded_again_replaces_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reloaded_base.py").write_text("from tenure import App\napp = App('x')\n")
    (tmp_path / "reloaded_jobs.py").write_text(
        "from reloaded_base import app\n@app.task\ndef charge() -> int:\n    return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    jobs = importlib.import_module("reloaded_jobs")
    before = jobs.charge
    importlib.reload(jobs)
    assert jobs.charge is not before
    assert jobs.app.tasks["reloaded_jobs.charge"] is jobs.charge
    for name in ("reloaded_base", "reloaded_jobs"):
        monkeypatch.delitem(sys.modules, name)


# -------------------------------------------------------------------------------------------------------- add_many


def test_add_many_is_one_call_and_keeps_the_order(app: App, broker: FakeBroker) -> None:
    task = app.task(charge)
    jobs = app.add_many([task.s(1), task.s(2).options(queue="billing"), task.s(3)])
    assert [job.id for job in jobs if isinstance(job, Job)] == [message.id for message in broker.messages]
    assert len(broker.calls) == 1
    assert [message.queue for message in broker.messages] == ["default", "billing", "default"]
    assert app.add_many([]) == []
    assert app.add_many(task.s(n) for n in range(2))
    assert len(broker.calls) == 2


def test_a_bad_item_does_not_stop_the_others(app: App, broker: FakeBroker) -> None:
    good, conflicting = app.task(charge), app.task(name="conflicting")(charge)
    large, failing = app.task(name="large")(charge), app.task(name="failing")(charge)
    keyed = app.task(name="keyed", key=lambda order_id, cents: order_id)(charge)
    broker.refuse = {
        "conflicting": KeyConflict("a" * 32, "b" * 32, "k"),
        "large": MessageTooLarge("a" * 32, 2_000_000, 1_048_576),
        "failing": ServerError("storage", "disk full"),
    }
    unfit = app.task(name="unchecked", check=False)(charge).s(object())  # type: ignore[arg-type]
    results = app.add_many([good.s(1), unfit, conflicting.s(1), large.s(1), failing.s(1), keyed.s(1), good.s(2)])
    kinds = [type(result) for result in results]
    assert kinds == [Job, AddError, KeyConflict, MessageTooLarge, AddError, AddError, Job]
    assert "args[0] is a object" in str(results[1])
    assert "disk full" in str(results[4])
    assert isinstance(results[4], AddError)
    assert isinstance(results[4].__cause__, ServerError)
    assert "has to return a str" in str(results[5])
    assert len(broker.messages) == 5
    with pytest.raises(KeyConflict):
        conflicting.delay(1)
    with pytest.raises(MessageTooLarge):
        large.delay(1)
    with pytest.raises(AddError, match="disk full"):
        failing.delay(1)


def test_what_is_no_signature_is_refused_before_anything_is_sent(app: App, broker: FakeBroker) -> None:
    task = app.task(charge)
    with pytest.raises(TypeError, match="takes signatures"):
        app.add_many([task.s(1), task])  # type: ignore[arg-type]
    other = App("other", broker=broker).task(charge)
    with pytest.raises(ConfigError, match="belongs to <App other"):
        app.add_many([task.s(1), other.s(1)])
    assert broker.calls == []


# ---------------------------------------------------------------------------------------------------- unavailable


def test_resend_of_one_gives_its_job(app: App, broker: FakeBroker) -> None:
    broker.unavailable = 3
    with pytest.raises(BrokerUnavailable) as caught:
        app.task(charge).options(key="k").delay(1)
    error = caught.value
    assert error.key == "k"
    for _ in range(2):
        with pytest.raises(BrokerUnavailable) as again:
            error.resend()
        error = again.value
    job = error.resend()
    assert isinstance(job, Job)
    assert (job.id, job.key, job.created) == (caught.value.id, "k", True)
    assert len(broker.messages) == 1


def test_resend_of_many_gives_their_jobs(app: App, broker: FakeBroker) -> None:
    broker.unavailable = 1
    task, unchecked = app.task(charge), app.task(name="unchecked", check=False)(charge)
    with pytest.raises(BrokerUnavailable) as caught:
        app.add_many([task.s(1), unchecked.s(object()), task.s(2)])  # type: ignore[arg-type]
    results = caught.value.resend()
    assert [type(result) for result in results] == [Job, AddError, Job]
    assert [results[0].id, results[2].id] == [message.id for message in broker.messages]


def test_a_refusal_after_resend_is_raised(app: App, broker: FakeBroker) -> None:
    broker.unavailable = 1
    broker.refuse["t"] = KeyConflict("a" * 32, "b" * 32, "k")
    with pytest.raises(BrokerUnavailable) as caught:
        app.task(name="t")(charge).delay(1)
    with pytest.raises(KeyConflict):
        caught.value.resend()


# ---------------------------------------------------------------------------------------------------------- broker


def test_the_broker_is_made_when_it_is_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any], FakeBroker]] = []

    def from_url(url: str, **settings: Any) -> FakeBroker:
        made.append((url, settings, FakeBroker()))
        return made[-1][2]

    monkeypatch.setattr(server, "from_url", from_url)
    app = App("shop", broker="tenure://there:1", add_timeout=2, pool_size=3)
    assert app.broker_url == "tenure://there:1"
    assert app.counts == (0, 0, 0)
    task = app.task(charge)
    assert made == []
    task.delay(1)
    task.delay(2)
    assert [(url, settings) for url, settings, _ in made] == [
        ("tenure://there:1", {"add_timeout": 2.0, "pool_size": 3})
    ]
    assert app.counts.added == 2
    app.close()
    app.close()
    assert made[0][2].closed == 1
    app.use_broker("tenure://elsewhere:2")
    task.delay(3)
    assert made[1][0] == "tenure://elsewhere:2"
    assert app.counts.added == 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        task.delay(4)
        os.write(writing, f"{len(made)} {len(made[1][2].messages)} {made[1][2].closed} {app.counts.added}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"3 1 0 1"
    os.close(reading)
    os.close(writing)


def test_what_was_added_is_counted_over_a_close(app: App, broker: FakeBroker) -> None:
    task = app.task(charge)
    task.delay(1)
    app.close()
    assert app.counts.added == 1
    task.delay(2)
    assert app.counts.added == 2
    with app.on_broker(FakeBroker()):
        task.delay(3)
        assert app.counts.added == 1
    assert app.counts.added == 2


def test_a_broker_that_was_given_has_no_url(app: App, broker: FakeBroker) -> None:
    assert app.broker is broker
    with pytest.raises(ConfigError, match="give a URL"):
        app.broker_url  # noqa: B018


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"include": "shop.jobs"}, "include='shop.jobs' has to be a list"),
        ({"include": [3]}, "module in include has to be a str"),
        ({"add_timeout": 301}, "add_timeout=301 is not possible: give 0.1 to 300 seconds"),
        ({"add_timeout": 0}, "add_timeout=0"),
        ({"pool_size": 0}, "pool_size=0"),
        ({"visibility_timeout": -1}, "visibility_timeout=-1"),
    ],
)
def test_an_impossible_app_is_refused(words: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        App("shop", **words)
    with pytest.raises(ConfigError, match="App name"):
        App("")


def test_includes_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "included_mail.py").write_text("found = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    App("shop", include=["included_mail"]).import_includes()
    assert sys.modules["included_mail"].found
    monkeypatch.delitem(sys.modules, "included_mail")
    with pytest.raises(ModuleNotFoundError):
        App("shop", include=["included_nowhere"]).import_includes()


def test_the_worker_gets_what_was_asked_for(app: App) -> None:
    app.task(charge)
    assert type(app.worker(queues=["default"], threads=2, grace=1)).__name__ == "Worker"
    with pytest.raises(ConfigError, match="threads=0"):
        app.worker(threads=0)
    with pytest.raises(ConfigError, match="grace=-1"):
        app.worker(grace=-1)


def test_a_mistyped_option_is_answered_with_the_right_one(app: App) -> None:
    app.task(charge)
    with pytest.raises(ConfigError, match=r"App\(\) has no option incldue=. Did you mean 'include'.*middleware.$"):
        App("shop", incldue=["shop.jobs"])  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"app.worker\(\) has no option thread=. Did you mean 'threads'.*async_slots, health.$"
    ):
        app.worker(thread=3)  # type: ignore[arg-type]


def test_an_empty_name_is_called_empty() -> None:
    with pytest.raises(ConfigError, match=r"^App name '' is empty; give 1 to 512 bytes of UTF-8$"):
        App("")
    with pytest.raises(ConfigError, match="has 600 bytes; shorten it to 512 bytes"):
        App("x" * 600)
