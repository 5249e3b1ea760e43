"""Hooks for the start and the end of a worker process."""

from __future__ import annotations

import logging

import pytest

from tenure import App, ConfigError
from tenure.worker.loop import Loop
from tenure.worker.process_hooks import StartHookError, need_loop, run_start_hooks, run_stop_hooks

called: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    called.clear()


def one() -> None:
    called.append("one")


async def two() -> None:
    called.append("two")


def three() -> int:
    called.append("three")
    return 3


def fails() -> None:
    raise SystemExit(4)


def returns_a_coroutine() -> object:
    return two()


def test_they_run_in_order_and_the_last_first_at_the_end(loop: Loop) -> None:
    app = App("shop")
    for hook in (one, two, three):
        assert app.on_worker_start(hook) is hook
        assert app.on_worker_stop(hook) is hook
    assert need_loop(app.start_hooks)
    run_start_hooks(app.start_hooks, loop)
    run_stop_hooks(app.stop_hooks, loop)
    assert called == ["one", "two", "three", "three", "two", "one"]


def test_the_first_that_fails_at_the_start_ends_it() -> None:
    with pytest.raises(StartHookError, match=r"on_worker_start hook tests\.unit\.test_process_hooks\.fails") as caught:
        run_start_hooks([one, fails, three], None)
    assert isinstance(caught.value.__cause__, SystemExit)
    assert called == ["one"]


def test_one_that_fails_at_the_end_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "tenure.worker"):
        run_stop_hooks([one, fails, three], None)
    assert called == ["three", "one"]
    assert "on_worker_stop hook tests.unit.test_process_hooks.fails has failed" in caplog.text
    assert "SystemExit: 4" in caplog.text


def test_without_coroutines_there_is_no_need_of_a_loop() -> None:
    assert not need_loop([one, three])
    with pytest.raises(StartHookError) as caught:
        run_start_hooks([returns_a_coroutine], None)
    assert "async def" in str(caught.value.__cause__)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_worker_start goes on a function"):
        App("shop").on_worker_start(3)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="on_worker_stop goes on a function"):
        App("shop").on_worker_stop("x")  # type: ignore[type-var]


def test_a_hook_that_needs_arguments_is_refused_at_definition() -> None:
    def needs(pool): ...  # type: ignore[no-untyped-def]

    async def aneeds(*, pool: int) -> None: ...

    def does_not(pool: int = 1, *more: int, **words: int) -> None: ...

    app = App("shop")
    with pytest.raises(ConfigError, match=r"on_worker_start goes on a function without parameters; .*'pool'"):
        app.on_worker_start(needs)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match=r"on_worker_stop goes on a function without parameters; .*'pool'"):
        app.on_worker_stop(aneeds)  # type: ignore[type-var]
    assert (app.start_hooks, app.stop_hooks) == ([], [])
    assert app.on_worker_start(does_not) is does_not
    assert app.on_worker_stop(dict) is dict  # has no signature that could be asked
