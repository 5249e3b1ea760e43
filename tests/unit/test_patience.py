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
