"""Testing an app's tasks: in this process, without a server, through the same code as with one.

With pytest the fixtures `tenure_app` and `tenure_worker` are there by themselves; elsewhere, and for a second app, use
`inline_worker(app)`.  docs/howto/test-your-tasks.md shows all of it.  The fixture `faults`, and `faults_for`, start a
real server and a real worker instead, to be broken: docs/howto/test-your-tasks-against-faults.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.testing.clock import MovableClock
    from tenure.testing.faults import Faults, faults_for
    from tenure.testing.inline import InlineWorker, JobDidNotRun, inline_worker
    from tenure.testing.recording import AddedCall, RecordingBroker

__all__ = [
    "AddedCall",
    "Faults",
    "InlineWorker",
    "JobDidNotRun",
    "MovableClock",
    "RecordingBroker",
    "faults_for",
    "inline_worker",
]

_PLACES = {
    "AddedCall": "recording",
    "Faults": "faults",
    "InlineWorker": "inline",
    "JobDidNotRun": "inline",
    "MovableClock": "clock",
    "RecordingBroker": "recording",
    "faults_for": "faults",
    "inline_worker": "inline",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the plugin in this package is loaded into every run of pytest, and has to be light."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
