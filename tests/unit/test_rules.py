"""The rules by hand: single values that say what the arithmetic is. The sweep over everything is in tests/property."""

from __future__ import annotations

from typing import Any

import pytest

from aiolimit import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.algorithms import CHARGE, MAX_EXACT, PEEK, REFUND, TAKE, UP_TO, Answer, compile_policy
from aiolimit.policies import Policy

S = 1_000_000
NOW = 1_800_000_000 * S  # a multiple of an hour


class Key:
    """One key under a policy, at moments in seconds after `NOW`."""

    def __init__(self, policy: Policy) -> None:
        self.rule = compile_policy(policy)
        self.state: Any = None

    def ask(self, seconds: float, op: int, cost: int) -> Answer:
        """One question."""
        self.state, answer = self.rule.decide(self.state, NOW + round(seconds * S), op, cost)
        return answer


def test_token_bucket_by_hand() -> None:
    """Two a second, four at once."""
    key = Key(TokenBucket(2, 1, 4))
    assert key.ask(0, TAKE, 3) == (3, 1, 0, 1_500_000)
    assert key.ask(0, TAKE, 2) == (0, 1, 500_000, 1_500_000)
    assert key.ask(0.4, TAKE, 2) == (0, 1, 100_000, 1_100_000)
    assert key.ask(0.5, TAKE, 2) == (2, 0, 0, 2 * S)
    assert key.ask(0.5, UP_TO, 9) == (0, 0, 500_000, 2 * S)
    assert key.ask(1.7, UP_TO, 9) == (2, 0, 0, 1_800_000)
    assert key.ask(1.7, CHARGE, 10) == (10, 0, 0, 6_800_000)
    assert key.ask(1.7, PEEK, 1) == (0, 0, 5_300_000, 6_800_000)
    assert key.ask(1.7, REFUND, 12) == (0, 2, 0, 800_000)
    assert key.ask(1.7, REFUND, 1000) == (0, 4, 0, 0)


def test_fixed_window_by_hand() -> None:
    """Four in ten seconds."""
    key = Key(FixedWindow(4, 10))
    assert key.ask(3, TAKE, 3) == (3, 1, 0, 7 * S)
    assert key.ask(4, TAKE, 2) == (0, 1, 6 * S, 6 * S)
    assert key.ask(9.999999, UP_TO, 9) == (1, 0, 0, 1)
    assert key.ask(10, PEEK, 4) == (0, 4, 0, 0)
    assert key.ask(10, CHARGE, 9) == (9, 0, 0, 10 * S)
    assert key.ask(11, REFUND, 6) == (0, 1, 0, 9 * S)
    assert key.ask(11, REFUND, 6) == (0, 4, 0, 0)


def test_sliding_window_by_hand() -> None:
    """Four in ten seconds; the last window's units count by what of it is left."""
    key = Key(SlidingWindow(4, 10))
    assert key.ask(3, TAKE, 4) == (4, 0, 0, 17 * S)
    assert key.ask(3, TAKE, 1) == (0, 0, 9_500_000, 17 * S)  # at 12.5 s, 3 of the 4 are left
    assert key.ask(10, PEEK, 1) == (0, 0, 2_500_000, 10 * S)
    assert key.ask(12.499999, TAKE, 1)[0] == 0
    assert key.ask(12.5, TAKE, 1) == (1, 0, 0, 17_500_000)
    assert key.ask(17.5, PEEK, 2) == (0, 2, 0, 12_500_000)
    assert key.ask(30, PEEK, 4) == (0, 4, 0, 0)


def test_sliding_log_by_hand() -> None:
    """Three in ten seconds."""
    key = Key(SlidingLog(3, 10))
    assert key.ask(0, TAKE, 1) == (1, 2, 0, 10 * S)
    assert key.ask(4, TAKE, 2) == (2, 0, 0, 10 * S)
    assert key.ask(5, TAKE, 1) == (0, 0, 5 * S, 9 * S)
    assert key.ask(5, TAKE, 2) == (0, 0, 9 * S, 9 * S)
    assert key.ask(9.999999, TAKE, 1) == (0, 0, 1, 4_000_001)
    assert key.ask(10, TAKE, 1) == (1, 0, 0, 10 * S)
    assert key.ask(12, REFUND, 1) == (0, 1, 0, 8 * S)  # the oldest first
    assert key.ask(12, CHARGE, 4) == (4, 0, 0, 10 * S)
    assert key.ask(21, PEEK, 1) == (0, 0, 1 * S, 1 * S)


@pytest.mark.parametrize(
    "policy", [TokenBucket(5, 60), FixedWindow(5, 60), SlidingWindow(5, 60), SlidingLog(5, 60)], ids=str
)
class TestEveryRule:
    def test_a_key_that_is_not_there_is_fresh(self, policy: Policy) -> None:
        """And stays not there until something is charged."""
        for op, cost in ((PEEK, 5), (TAKE, 0), (UP_TO, 0), (CHARGE, 0), (REFUND, 0), (REFUND, 3)):
            key = Key(policy)
            assert key.ask(0, op, cost) == (0, 5, 0, 0)
            assert key.state is None

    def test_a_clock_a_little_behind_stands_still(self, policy: Policy) -> None:
        """For a second at most the key waits for it, and loses nothing."""
        key = Key(policy)
        key.ask(10, TAKE, 3)
        assert key.ask(9.5, TAKE, 1)[:2] == (1, 1)
        assert key.ask(9.5, PEEK, 2)[2] > 0
        assert key.ask(10, PEEK, 1)[1] == 1

    def test_a_clock_far_behind_counts_the_units_as_of_now(self, policy: Policy) -> None:
        """So that they leave in their time."""
        key = Key(policy)
        key.ask(36_000, TAKE, 5)
        granted, remaining, retry_us, reset_us = key.ask(0, TAKE, 1)
        assert (granted, remaining) == (0, 0)
        assert 0 < retry_us <= 120 * S
        assert 0 < reset_us <= 120 * S
        assert key.ask(120, PEEK, 5) == (0, 5, 0, 0)

    def test_a_debt_beyond_what_is_exact_stays_there(self, policy: Policy) -> None:
        """No number grows past it."""
        key = Key(policy)
        for _ in range(4):
            key.ask(0, CHARGE, MAX_EXACT)
        numbers = key.state if isinstance(key.state, tuple) else (key.state.excess,)
        assert max(numbers) <= MAX_EXACT
        assert key.ask(0, PEEK, 1)[0] == 0

    def test_its_numbers_fit_into_a_lua_number(self, policy: Policy) -> None:
        """All the parameters that a script is given."""
        assert all(0 <= number <= MAX_EXACT for number in compile_policy(policy).params)


def test_extreme_policies_fit_into_lua_numbers() -> None:
    """The largest and smallest of each."""
    ten_years = 316_224_000
    for policy in (
        TokenBucket(1, ten_years, 10**9),
        TokenBucket(10**9, 0.001, 10**9),
        TokenBucket(1 / 3, 1 / 7, 10**9),
        FixedWindow(10**9, ten_years),
        SlidingWindow(10**9, ten_years),
        SlidingWindow(1, 0.001),
        SlidingLog(10**6, ten_years),
    ):
        params = compile_policy(policy).params
        assert all(0 <= number <= MAX_EXACT for number in params), policy
        assert all(type(number) is int for number in params)


@pytest.mark.parametrize(
    ("rate", "per", "burst"),
    [(1, 86_400, 10**6), (1e-5, 1, 10**9), (10**6, 1, 1), (1 / 3, 1 / 7, 10**9), (0.7, 86_400, 10**9), (1, 3e8, 10**9)],
)
def test_a_bucket_is_rounded_to_the_slower_side_by_little(rate: float, per: float, burst: int) -> None:
    """Where its exact numbers would not fit: never faster than said, and within one part in 100,000."""
    policy = TokenBucket(rate, per, burst)
    rule = compile_policy(policy)
    unit, gain, span, _, _ = rule.params
    interval = policy.interval
    assert interval <= interval.__class__(unit * span, gain) <= interval * interval.__class__(100_001, 100_000)


def test_a_billion_units_gain_what_they_should() -> None:
    """One in a hundred thousand seconds, on top of a billion: after a second there is a hundred-thousandth of one."""
    key = Key(TokenBucket(1, 100_000, 10**9))
    key.ask(0, TAKE, 10**9)
    first = key.ask(0, TAKE, 1)[2]
    for number in range(1, 20_001):
        assert key.ask(number / 10_000, TAKE, 10**9)[0] == 0
    assert first - key.ask(2, TAKE, 1)[2] == pytest.approx(2 * S, rel=0.01)
