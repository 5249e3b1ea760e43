"""What tests with real processes share: a stage for them, ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stage.apps import jobs
from tests.stage.harness import Stage


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """A folder for processes of the command line; none runs yet."""
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def stage(bare: Stage) -> Stage:
    """A server of its own, to which this process adds jobs of `tests.stage.apps.jobs`."""
    bare.start_server()
    bare.use(jobs.app)
    return bare
