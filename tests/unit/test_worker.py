"""The worker in one process, over a scripted broker."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tenure import App, ConfigError
from tenure.broker import Added, Capabilities, EndedAs, ProducerCounts
from tenure.clock import boot
from tenure.message import Message
from tenure.worker import Counts
from tenure.worker.worker import unused_queues
from tests.unit.worker_fakes import ScriptedConsumer, ScriptedKeeper, delivery


class ScriptedBroker:
    """Hands out its deliveries in the first take; after that takes are empty."""

    capabilities = Capabilities(max_body=1000, max_batch=100)

    def __init__(self, jobs: int) -> None:
        deliveries = [delivery(job, task="ok", deadline=boot() + 30) for job in range(jobs)]
        self.worker = ScriptedConsumer([deliveries])
        self.lease_keeper = ScriptedKeeper()
        self.sessions: list[str] = []
        self.queues = ["default"]

    def add(self, messages: Sequence[Message]) -> list[Added]:
        raise NotImplementedError

    def counts(self) -> ProducerCounts:
        return ProducerCounts(0, 0, 0)

    def consumer(self, queues: Sequence[str], *, session: str, **words: Any) -> ScriptedConsumer:
        assert list(queues) == self.queues
        self.sessions.append(session)
        return self.worker

    def keeper(self) -> ScriptedKeeper:
        return self.lease_keeper

    def results(self) -> None:
        return None

    def admin(self) -> None:
        return None

    def close(self) -> None:
        pass


def shop(broker: ScriptedBroker) -> App:
    app = App("shop", broker=broker)

    @app.task(name="ok")
    def ok() -> None:
        return None

    return app


def test_it_runs_until_stopped_says_bye_and_returns_its_counts() -> None:
    broker = ScriptedBroker(5)
    worker = shop(broker).worker(threads=5)
    broker.worker.when_empty = worker.stop
    assert worker.run() == Counts(done=5, started=5)
    assert broker.lease_keeper.byes == [(broker.sessions[0], "left", "", [])]


def test_it_tells_its_health_while_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker(1)
    worker = shop(broker).worker(health="127.0.0.1:0")
    told: list[object] = []

    def ask() -> None:
        if told:  # it may take once more before it stops
            return
        url = caplog.messages[0].split()[2]
        try:
            with urlopen(url.replace("/live", "/ready")) as answer:
                told.append(json.load(answer)["processes"])
        except HTTPError as error:  # until the broker was asked for the first time
            error.close()
        else:
            worker.stop()

    broker.worker.when_empty = ask
    with caplog.at_level("INFO", "tenure.worker"):
        assert worker.run().done == 1
    assert told == [[{"pid": os.getpid(), "state": "working"}]]
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        shop(broker).worker(health="7334")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_drain_it_and_the_old_handlers_come_back(number: signal.Signals) -> None:
    told: list[int] = []

    def tell_once() -> None:
        if not told:
            told.append(1)
            os.kill(os.getpid(), number)

    old = signal.getsignal(number)
    broker = ScriptedBroker(2)
    broker.worker.when_empty = tell_once
    assert shop(broker).worker(threads=2).run() == Counts(done=2, started=2)
    assert signal.getsignal(number) == old


def test_counts_are_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    broker = ScriptedBroker(1)
    worker = shop(broker).worker(threads=1)

    def ask_and_stop() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        worker.stop()

    broker.worker.when_empty = ask_and_stop
    worker.run()
    assert "counts: done=" in capsys.readouterr().out


def test_it_runs_in_another_thread_too() -> None:
    broker = ScriptedBroker(1)
    worker = shop(broker).worker(threads=1)
    broker.worker.when_empty = worker.stop
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_its_bye_is_repeated_until_answered() -> None:
    answers = iter([ConnectionError("cut"), ConnectionError("cut")])

    def bye() -> list[EndedAs]:
        error = next(answers, None)
        if error is not None:
            raise error
        return []

    broker = ScriptedBroker(1)
    broker.lease_keeper.on_bye = bye
    worker = shop(broker).worker(threads=1)
    broker.worker.when_empty = worker.stop
    worker.run()
    assert len(broker.lease_keeper.byes) == 3


def test_an_app_without_tasks_is_refused() -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        App("shop", broker=ScriptedBroker(0)).worker().run()


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        ([], "^queues names no queues"),
        ("default", r"queues='default' has to be a list .*queues=\['default'\]"),
        (b"default", "queue has to be a str, not int"),
        ([1], "queue has to be a str, not int: 1"),
        ([None], "queue has to be a str, not NoneType"),
        ([""], "queue"),
        (7, "queues=7 has to be a list"),
    ],
)
def test_queues_that_cannot_be_are_refused_at_once(queues: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        shop(ScriptedBroker(0)).worker(queues=queues)
    assert "--queues" not in str(refused.value)


def test_a_queue_of_no_task_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    app = shop(ScriptedBroker(0))
    assert unused_queues(app, ["default"]) == ""
    assert unused_queues(app, ["defualt", "x"]) == (
        "queues that are no task's own: defualt, x. Only what calls put there with options(queue=) will come. "
        "Did you mean 'default'?"
    )
    broker = ScriptedBroker(0)
    broker.queues = ["defualt", "default"]
    worker = shop(broker).worker(queues=iter(broker.queues))  # type: ignore[arg-type]
    broker.worker.when_empty = worker.stop
    worker.run()
    assert [record.levelname for record in caplog.records if "defualt" in record.getMessage()] == ["WARNING"]


def test_in_the_main_thread_it_says_how_it_begins_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    broker = ScriptedBroker(2)
    worker = shop(broker).worker(threads=2, name="w1")
    broker.worker.when_empty = worker.stop
    worker.run()
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == "worker w1: 1 process of 2 slots, queues default, tasks ok"
    assert printed.out.splitlines()[-1].startswith("counts: done=2 ")


def test_it_does_not_need_the_whole_grace_to_leave_with_nothing_in_hand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> list[EndedAs]:
        raise ConnectionError("no server")

    monkeypatch.setattr("tenure.worker.worker.EMPTY_BYE_TIME", 0.05)
    broker = ScriptedBroker(1)
    broker.lease_keeper.on_bye = refuse
    worker = shop(broker).worker(threads=1, grace=30)
    broker.worker.when_empty = worker.stop
    begun = boot()
    assert worker.run() == Counts(done=1, started=1)
    assert boot() - begun < 10
    assert "holds no job" in caplog.text


def test_two_signals_in_the_same_moment_drain() -> None:
    told: list[int] = []

    def tell_twice() -> None:
        if not told:
            told.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)

    broker = ScriptedBroker(2)
    broker.worker.when_empty = tell_twice
    assert shop(broker).worker(threads=2).run() == Counts(done=2, started=2)
