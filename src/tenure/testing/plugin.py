"""The pytest plugin: `tenure_app`, `tenure_worker` and `faults`.

It imports little, for it is loaded into every run of pytest where Tenure is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenure.app import App
    from tenure.errors import BrokerUnavailable
    from tenure.testing.faults import Faults
    from tenure.testing.inline import InlineWorker

OPTION = "tenure_app"
_HINT = (
    f"this test does not use the fixture {OPTION} (or tenure_worker), so its jobs go to a real server; with the "
    "fixture they stay in the test's own process, and no server is needed"
)


# Its tests are in the package, not in the user's files, and say what was wrong as those do.
pytest.register_assert_rewrite("tenure.testing.contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest of the option in its configuration file."""
    parser.addini(OPTION, "the Tenure app to test, as module:attribute, for example shop.jobs:app", default="")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Where no server has answered a test that uses no fixture of ours, say with the error that there is one."""
    if call.excinfo is None or not {OPTION, "faults"}.isdisjoint(getattr(item, "fixturenames", ())):
        return
    error = _unavailable(call.excinfo.value)
    if error is not None and _HINT not in getattr(error, "__notes__", ()):
        error.add_note(_HINT)


def _unavailable(error: BaseException | None) -> BrokerUnavailable | None:
    """Return the BrokerUnavailable among an error and its causes."""
    errors = sys.modules.get("tenure.errors")
    if errors is None:  # what was not loaded has raised nothing
        return None
    kind: type[BrokerUnavailable] = errors.BrokerUnavailable
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


@pytest.fixture
def tenure_app(request: pytest.FixtureRequest) -> Iterator[App]:
    """The app that the option `tenure_app` names, switched to memory:// for this test.

    Override it where the app is made by a function; `tenure_worker` switches what it returns.
    """
    from tenure.testing.inline import inline_worker

    with inline_worker(_find(request.config.getini(OPTION))) as worker:
        yield worker.app


@pytest.fixture
def tenure_worker(tenure_app: App) -> Iterator[InlineWorker]:
    """What runs the jobs of `tenure_app` in this test, and tells what was added."""
    from tenure.testing.inline import inline_worker, worker_of

    with ExitStack() as stack:
        yield worker_of(tenure_app) or stack.enter_context(inline_worker(tenure_app))


@pytest.fixture
def faults(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """A real server and a worker process of the app that the option `tenure_app` names, to be broken in this test.

    The app adds its jobs there, through a proxy.
    """
    from tenure.testing.faults import faults_for

    if OPTION in request.fixturenames:
        raise pytest.UsageError(f"a test has either faults, with a server, or {OPTION} and tenure_worker, without")
    place = request.config.getini(OPTION)
    _find(place)
    with faults_for(place, tmp_path_factory.mktemp("faults")) as faults:
        yield faults


def _find(place: str) -> App:
    """Return the app at `module:attribute`; raises UsageError saying what to write."""
    from tenure.app import App

    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        what = "is not set" if not place else f"is {place!r}"
        raise pytest.UsageError(
            f'{OPTION} {what}: name your app in the configuration of pytest, such as {OPTION} = "shop.jobs:app", or '
            f"override the fixture {OPTION} in conftest.py to return it"
        )
    app = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(app, App):
        raise pytest.UsageError(f"{OPTION} = {place!r}: {attribute} in {module} is no App")
    return app
