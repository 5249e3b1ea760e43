"""Bad weather: parts of the contract once more, while connections are cut and answers lost all the time."""

from __future__ import annotations

import pytest

from tenure.testing.contract.accounts import RecordContract
from tenure.testing.contract.adding import AddingContract
from tenure.testing.contract.base import Test, needs
from tenure.testing.contract.keys import KeyContract
from tenure.testing.contract.leasing import LeavingContract
from tenure.testing.contract.network import RoughPart
from tenure.testing.contract.rough import RoughScene
from tenure.testing.contract.settling import AgainContract, SettlingContract
from tenure.testing.contract.taking import TakingContract

AGAIN: tuple[Test, ...] = (
    AddingContract.test_a_job_comes_as_it_was_added,
    AddingContract.test_many_are_added_in_one_call_and_answered_in_order,
    AgainContract.test_a_retry_is_one_transaction_with_what_follows_it,
    AgainContract.test_what_follows_is_added_with_the_settlement_and_once,
    KeyContract.test_fifty_threads_with_one_key_make_one_job,
    KeyContract.test_one_call_with_ten_times_one_key_makes_one_job,
    LeavingContract.test_a_bye_gives_everything_back_at_once,
    RecordContract.test_it_is_balanced_while_everybody_works_and_agrees_in_the_end,
    SettlingContract.test_many_are_settled_in_one_call_and_answered_in_order,
    TakingContract.test_many_workers_share_the_jobs_and_none_comes_twice,
)
"""The parts that hold whatever the network does."""


class WeatherContract(RoughPart):
    """Cuts and lost answers, again and again, change nothing of what was promised."""

    @needs("network")
    @pytest.mark.parametrize("test", AGAIN, ids=lambda test: test.__name__.removeprefix("test_"))
    def test_in_bad_weather(self, rough: RoughScene, test: Test) -> None:
        with rough.weather():
            test(self, scene=rough)
