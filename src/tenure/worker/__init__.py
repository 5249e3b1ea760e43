"""The worker: takes jobs, runs them, settles them, and keeps their leases meanwhile."""

from __future__ import annotations

from tenure.worker.counts import Counts
from tenure.worker.worker import Worker

__all__ = ["Counts", "Worker"]
