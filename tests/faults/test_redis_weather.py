"""The faults that the embedded server is broken with, on Redis: the same tests, the same accounts at the end."""

from __future__ import annotations

from tests.faults.test_health import (
    test_a_busy_worker_is_ready_until_the_broker_falls_silent_or_it_leaves,
    test_a_worker_without_a_broker_lives_and_is_not_ready,
)
from tests.faults.test_lease import (
    test_a_cut_in_the_moment_when_a_function_returns,
    test_a_worker_that_is_cut_off_ends_its_tasks_before_another_one_has_their_jobs,
)
from tests.faults.test_outage import test_a_worker_without_jobs_rests
from tests.faults.test_processes import test_a_whole_worker_is_killed, test_a_worker_process_is_killed
from tests.faults.test_silence import proxy, test_open_connections_fall_silent_for_ever, test_the_server_stands_still
from tests.faults.test_storage import test_a_delayed_job_comes_due_though_the_server_was_killed
from tests.faults.test_weather import (
    test_all_connections_are_cut_again_and_again,
    test_new_connections_are_cut_ten_times,
    test_random_weather,
    test_the_server_is_killed_twenty_times_under_load,
)
from tests.stage.redis_stage import bare, stage

__all__ = [
    "bare",
    "proxy",
    "stage",
    "test_a_busy_worker_is_ready_until_the_broker_falls_silent_or_it_leaves",
    "test_a_cut_in_the_moment_when_a_function_returns",
    "test_a_delayed_job_comes_due_though_the_server_was_killed",
    "test_a_whole_worker_is_killed",
    "test_a_worker_process_is_killed",
    "test_a_worker_that_is_cut_off_ends_its_tasks_before_another_one_has_their_jobs",
    "test_a_worker_without_a_broker_lives_and_is_not_ready",
    "test_a_worker_without_jobs_rests",
    "test_all_connections_are_cut_again_and_again",
    "test_new_connections_are_cut_ten_times",
    "test_open_connections_fall_silent_for_ever",
    "test_random_weather",
    "test_the_server_is_killed_twenty_times_under_load",
    "test_the_server_stands_still",
]
