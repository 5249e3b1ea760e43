"""The app and its task, as any program would write them: measure one source file and keep what was found."""

from __future__ import annotations

from pathlib import Path

from examples.stdlib_report.findings import measured, save
from examples.stdlib_report.marks import marked
from tenure import App, current_job

app = App("stdlib-report", add_timeout=30)


@app.task(key=lambda path, folder: path)
def measure(path: str, folder: str) -> None:
    """Count what is in the source file at `path`, and keep the finding in `folder`.

    A worker that dies in the middle leaves the job to another one, so this may run twice for a path.  That is
    harmless: the finding has the path as its key, and the one with the higher fence stays.
    """
    with marked(Path(folder), current_job.id, current_job.fence):
        save(Path(folder), measured(Path(path)), current_job.fence)
