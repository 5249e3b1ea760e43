"""A web application that adds a job when it is imported, as by a server that forks later, and in each request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from tests.stage.apps import jobs

first = jobs.work.delay(-1)


def app(environ: dict[str, str], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Add a job and say which, and in which process."""
    job = jobs.work.delay(int(environ["QUERY_STRING"]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {job.id}".encode()]
