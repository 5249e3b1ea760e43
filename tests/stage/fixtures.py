"""What tests with real processes share: a stage for them, ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.stage.apps import jobs
from tests.stage.harness import Stage

S = TypeVar("S", bound=Stage)


@contextmanager
def ended(stage: S) -> Iterator[S]:
    """End a stage whatever happens."""
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """A folder for processes of the command line; none runs yet."""
    with ended(Stage(tmp_path)) as stage:
        yield stage


@pytest.fixture
def stage(bare: Stage) -> Stage:
    """A server of its own, to which this process adds jobs of `tests.stage.apps.jobs`."""
    bare.start_server()
    bare.use(jobs.app)
    return bare
