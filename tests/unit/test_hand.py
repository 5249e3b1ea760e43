"""How much work a process may have in hand: a few milliseconds' worth of very short jobs, and none of longer ones."""

from __future__ import annotations

from tenure.worker.hand import FIRST_REST, LONGEST_REST, MOMENT, MOST, SHORT, Hand


def after(hand: Hand, now: float, jobs: int, seconds: float) -> int:
    """Return what may be in hand after so many jobs of so many seconds each."""
    for _ in range(jobs):
        hand.ended(seconds)
    return hand.size(now)


def test_at_first_there_is_none() -> None:
    assert Hand(10).size(1000.0) == 0


def test_of_very_short_jobs_there_is_as_much_as_lasts_a_moment() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    assert after(hand, 1000.002, 20, 0.00005) == int(20 / 0.002 * MOMENT + 0.5)


def test_where_the_pace_is_not_that_of_all_slots_there_is_none() -> None:
    for slots, size in ((20, 20), (21, 0)):
        hand = Hand(slots)
        hand.size(1000.0)
        assert after(hand, 1000.002, 10, 0.00005) == size


def test_one_job_tells_nothing() -> None:
    hand = Hand(1)
    hand.size(1000.0)
    assert after(hand, 1000.001, 1, 0.0) == 0
    assert after(hand, 1000.002, 2, 0.0) > 1


def test_there_is_a_limit() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    assert after(hand, 1000.002, 5000, 0.0) == MOST


def test_of_longer_jobs_there_is_none() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    assert after(hand, 1000.010, 100, SHORT) == 0


def test_it_is_their_mean_that_counts() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    hand.ended(0.05)
    assert after(hand, 1000.010, 99, 0.0001) > 0


def test_after_a_while_without_jobs_there_is_none() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    assert after(hand, 1000.002, 20, 0.0) > 0
    assert hand.size(1000.5) == 0


def test_a_job_of_long_ago_is_not_counted_again() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    after(hand, 1000.002, 1000, 0.05)
    assert after(hand, 1000.004, 20, 0.0) > 0


def test_within_a_glance_it_stays_what_it_was() -> None:
    hand = Hand(10)
    hand.size(1000.0)
    before = after(hand, 1000.002, 20, 0.0)
    assert after(hand, 1000.0021, 1, 5.0) == before > 0


def test_once_it_had_to_go_back_there_is_none_for_a_while_and_longer_each_time() -> None:
    hand, now = Hand(10), 1000.0
    for rest in (FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST):
        hand.went_back(now)
        hand.size(now + rest - 0.004)
        assert after(hand, now + rest - 0.002, 20, 0.0) == 0
        now += rest + 0.001
        assert after(hand, now, 30, 0.0) > 0
    now += 8 * FIRST_REST
    hand.size(now)
    hand.went_back(now)
    assert after(hand, now + FIRST_REST + 0.001, 1000, 0.0) > 0, "it went well for long enough"


def test_it_rests_no_longer_than_half_a_minute() -> None:
    hand = Hand(1)
    for _ in range(20):
        hand.went_back(1000.0)
    hand.size(1000.0 + LONGEST_REST)
    assert after(hand, 1000.002 + LONGEST_REST, 20, 0.0) > 0
