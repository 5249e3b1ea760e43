"""How much work a process may have in hand: a few milliseconds' worth of very short jobs, and none of longer ones."""

from __future__ import annotations

from tenure.worker.hand import FEW, MOMENT, MOST, SHORT, Hand


def after(hand: Hand, now: float, jobs: int, seconds: float) -> int:
    """Return what may be in hand after so many jobs of so many seconds each."""
    for _ in range(jobs):
        hand.ended(seconds)
    return hand.size(now)


def test_at_first_there_is_none() -> None:
    assert Hand().size(1000.0) == 0


def test_of_very_short_jobs_there_is_as_much_as_lasts_a_moment() -> None:
    hand = Hand()
    hand.size(1000.0)
    assert after(hand, 1000.025, 250, 0.00005) == int(250 / 0.025 * MOMENT + 0.5)


def test_there_is_a_limit() -> None:
    hand = Hand()
    hand.size(1000.0)
    assert after(hand, 1000.025, 5000, 0.0) == MOST


def test_of_longer_jobs_there_is_none() -> None:
    hand = Hand()
    hand.size(1000.0)
    assert after(hand, 1000.025, 1000, SHORT) == 0


def test_it_is_their_mean_that_counts() -> None:
    hand = Hand()
    hand.size(1000.0)
    hand.ended(0.05)
    assert after(hand, 1000.025, 99, 0.0001) > 0


def test_after_a_while_without_jobs_there_is_none() -> None:
    hand = Hand()
    hand.size(1000.0)
    assert after(hand, 1000.025, 200, 0.0) > 0
    assert hand.size(1000.5) == 0


def test_a_job_of_long_ago_is_not_counted_again() -> None:
    hand = Hand()
    hand.size(1000.0)
    after(hand, 1000.025, 1000, 0.05)
    assert after(hand, 1000.050, 200, 0.0) > 0


def test_within_a_glance_it_stays_what_it_was() -> None:
    hand = Hand()
    hand.size(1000.0)
    before = after(hand, 1000.025, 200, 0.0)
    assert after(hand, 1000.026, 1, 5.0) == before > 0


def test_a_burst_is_no_pace() -> None:
    hand = Hand()
    hand.size(1000.0)
    assert after(hand, 1000.002, 20, 0.0) == 0
    assert after(hand, 1000.1, 20, 0.0) == 0


def test_a_few_are_not_worth_it() -> None:
    for jobs, size in ((38, 0), (41, FEW)):
        hand = Hand()
        hand.size(1000.0)
        assert after(hand, 1000.04, jobs, 0.0) == size
