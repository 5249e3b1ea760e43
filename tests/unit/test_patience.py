"""How a worker's service waits after a failure, and what it says."""

from __future__ import annotations

import logging
import threading

import pytest

from tenure.errors import ConfigError
from tenure.worker.patience import Patience
from tests.unit.scripted import MovedClock


def test_a_refusal_is_said_once_until_it_goes_well_or_is_another_one(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(MovedClock(), lambda: 1.0)
    stopped = threading.Event()

    def said(text: str) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            patience.wait(ConfigError(text), "taking jobs", stopped)
        assert not any(record.exc_info for record in caplog.records)
        return caplog.messages

    assert said("no such password") == ["the broker refuses this worker while taking jobs: no such password"]
    assert said("no such password") == []
    assert said("no such user") == ["the broker refuses this worker while taking jobs: no such user"]
    patience.reset()
    assert len(said("no such user")) == 1


def test_that_it_goes_on_is_said_once_and_only_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(MovedClock(), lambda: 1.0)
    with caplog.at_level(logging.INFO):
        patience.reset()
        for _ in range(2):
            patience.wait(ConnectionError("cut"), "taking jobs", threading.Event())
        patience.reset()
        patience.reset()
    assert caplog.messages == [
        "the connection failed while taking jobs (cut); trying again",
        "the broker answers again; taking jobs goes on",
    ]
