"""What works on the embedded server works on Redis: the same tests, on the other broker."""

from __future__ import annotations

import pytest

from tests.acceptance.test_names_and_layout import (
    test_whatever_may_be_a_name_is_one_for_tasks_queues_and_keys,
)
from tests.acceptance.test_queues import (
    test_a_purge_cancels_what_waits_and_a_dry_run_only_counts_it,
    test_the_next_starts_are_those_of_the_highest_priority_and_in_it_first_in_first_out,
)
from tests.acceptance.test_work import (
    test_5000_jobs_run_once_each,
    test_a_producer_forks,
    test_keys_and_batches,
    test_options_of_calls,
)
from tests.stage.apps import jobs, operated
from tests.stage.harness import Stage
from tests.stage.redis_stage import bare

__all__ = [
    "bare",
    "stage",
    "test_5000_jobs_run_once_each",
    "test_a_producer_forks",
    "test_a_purge_cancels_what_waits_and_a_dry_run_only_counts_it",
    "test_keys_and_batches",
    "test_options_of_calls",
    "test_the_next_starts_are_those_of_the_highest_priority_and_in_it_first_in_first_out",
    "test_whatever_may_be_a_name_is_one_for_tasks_queues_and_keys",
]


@pytest.fixture
def stage(bare: Stage) -> Stage:
    """A Redis of its own, to which this process adds the jobs of both apps."""
    bare.start_server()
    for app in (jobs.app, operated.app):
        bare.use(app)
    return bare
