"""An app with a logging of its own, in a file and in its own form, set before Tenure is imported or after."""

from __future__ import annotations

import logging.config
import os

from tests.stage.marks import folder

CONFIG = {
    "version": 1,
    "handlers": {"own": {"class": "logging.FileHandler", "formatter": "own", "filename": str(folder() / "own.log")}},
    "formatters": {"own": {"format": "own %(levelname)s %(name)s %(message)s | %(job_id)s %(task)s %(attempt)s"}},
    "root": {"handlers": ["own"], "level": "INFO"},
}

if os.environ.get("LOGGING_SET") == "before":
    logging.config.dictConfig(CONFIG)

from tenure import App, Backoff, JobContext  # noqa: E402  (the order is what is tested)

app = App("logged")

if os.environ.get("LOGGING_SET") == "after":
    logging.config.dictConfig(CONFIG)

log = logging.getLogger("shop.orders")


@app.on_worker_start
def begins() -> None:
    """Log where no job is."""
    log.info("ready")


@app.task(name="once")
def once(name: str) -> None:
    """Log once, and nothing of the argument."""
    log.info("packed")


@app.task(name="fails", backoff=Backoff(base=0.05), max_attempts=2)
def fails(ctx: JobContext, name: str, *, note: str) -> None:
    """Log and fail at every attempt; what it raises quotes its argument, as errors do."""
    ctx.log.info("trying")
    raise ValueError(f"no such customer: {name}")


@app.task(name="afails", max_attempts=1)
async def afails(name: str) -> dict[str, str]:
    """Return what cannot be kept."""
    return {name: object()}  # type: ignore[dict-item]


@app.task(name="typed")
def typed(number: int) -> None:
    """Take what the test does not give."""
