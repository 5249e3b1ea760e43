"""Testing an app's tasks: in this process, without a server, through the same code as with one.

With pytest the fixtures `tenure_app` and `tenure_worker` are there by themselves; elsewhere, and for a second app, use
`inline_worker(app)`.  docs/howto/test-your-tasks.md shows all of it.
"""

from tenure.testing.clock import MovableClock
from tenure.testing.inline import InlineWorker, JobDidNotRun, inline_worker
from tenure.testing.recording import AddedCall, RecordingBroker

__all__ = ["AddedCall", "InlineWorker", "JobDidNotRun", "MovableClock", "RecordingBroker", "inline_worker"]
