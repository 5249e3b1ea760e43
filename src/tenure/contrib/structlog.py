"""A structlog processor that names the running job; nothing of structlog is needed for it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tenure.context import named, running


def add_job(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Give an event `job_id`, `job_key`, `task` and `attempt`, inside of a job and where it has none of its own."""
    job = running()
    for name, value in () if job is None else named(job).items():
        event.setdefault(name, value)
    return event
