"""Policies as values: what they take, what they refuse, and in which words."""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest

from aiolimit import FixedWindow, PolicyError, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import MAX_PERIOD, plain_fraction

WINDOWS = (FixedWindow, SlidingWindow, SlidingLog)
each_window = pytest.mark.parametrize("kind", WINDOWS)
huge = 10**400  # no float is so large
endless = 10**5000  # Python does not even write it


@pytest.mark.parametrize("rate", [0, -1, 0.0, -0.5])
def test_a_bucket_has_a_rate_above_zero(rate: float) -> None:
    """Named, with the value."""
    with pytest.raises(PolicyError, match=rf"rate must be more than 0 .* not {rate}"):
        TokenBucket(rate)


@pytest.mark.parametrize(
    "wrong",
    [math.nan, math.inf, -math.inf, "10", None, True, 10j, [1], huge, -huge, endless],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_number_is_finite_and_a_number(wrong: Any) -> None:
    """As a rate, a period and a window: the argument is named, and so is what stands there."""
    named = "" if wrong in (huge, -huge, endless) else type(wrong).__name__
    with pytest.raises(PolicyError, match=rf"rate must be .*, not .*{named}"):
        TokenBucket(wrong)
    with pytest.raises(PolicyError, match=rf"per must be .*, not .*{named}"):
        TokenBucket(1, wrong)
    for kind in WINDOWS:
        with pytest.raises(PolicyError, match=rf"window must be .*, not .*{named}"):
            kind(1, wrong)


@pytest.mark.parametrize("seconds", [0, -1, 0.0005, 0.00099, MAX_PERIOD + 1, 1e12])
def test_a_period_lasts_a_millisecond_to_ten_years(seconds: float) -> None:
    """The range is told."""
    range_ = "between 0.001 s and 316224000 s"
    with pytest.raises(PolicyError, match=f"per must be {range_}"):
        TokenBucket(1, seconds)
    for kind in WINDOWS:
        with pytest.raises(PolicyError, match=f"window must be {range_}"):
            kind(1, seconds)


@pytest.mark.parametrize(
    "wrong",
    [0, -1, 1.0, 1.5, math.nan, math.inf, "10", None, True, 10**9 + 1, huge, endless],
    ids=lambda wrong: type(wrong).__name__,
)
def test_units_are_whole_and_in_range(wrong: Any) -> None:
    """As a limit and as a burst."""
    for kind in WINDOWS:
        with pytest.raises(PolicyError, match="limit must be"):
            kind(wrong, 1)
    if wrong is not None:
        with pytest.raises(PolicyError, match="burst must be"):
            TokenBucket(1, 1, wrong)


def test_a_log_has_at_most_a_million_units() -> None:
    """Each takes memory on the server."""
    assert SlidingLog(10**6, 1).limit == 10**6
    with pytest.raises(PolicyError, match="limit must be between 1 and 1000000, not 1000001"):
        SlidingLog(10**6 + 1, 1)


def test_a_unit_comes_within_ten_years() -> None:
    """Slower is no limit but a lock."""
    assert TokenBucket(1, MAX_PERIOD).limit == 1
    with pytest.raises(PolicyError, match="too slow: one unit must come within ten years"):
        TokenBucket(0.5, MAX_PERIOD)
    with pytest.raises(PolicyError, match="too slow"):
        TokenBucket(1e-300)


def test_a_rate_too_large_for_a_burst_asks_for_one() -> None:
    """Where the default is out of range."""
    with pytest.raises(PolicyError, match="give a burst"):
        TokenBucket(2e9)
    assert TokenBucket(2e9, burst=5).limit == 5


@pytest.mark.parametrize("name", ["", 5, b"x", True])
def test_a_name_is_a_text(name: Any) -> None:
    """Or there is none."""
    for make in (lambda: TokenBucket(1, name=name), lambda: FixedWindow(1, 1, name=name)):
        with pytest.raises(PolicyError, match="name must be a text that is not empty, or None"):
            make()


@pytest.mark.parametrize(
    ("rate", "burst"), [(1, 1), (0.25, 1), (1.9, 1), (7.5, 7), (100, 100), (10**9, 10**9), (0.999, 1)]
)
def test_the_burst_is_the_rate_rounded_down_unless_given(rate: float, burst: int) -> None:
    """And one at least."""
    assert TokenBucket(rate).burst == TokenBucket(rate).limit == burst
    assert TokenBucket(rate, burst=3).limit == 3


def test_policies_are_frozen_values() -> None:
    """Equal by what they say; usable as keys; not to be changed, neither by mistake nor by a typo."""
    for make in (
        lambda: TokenBucket(10, 60, 5, name="a"),
        lambda: FixedWindow(10, 60),
        lambda: SlidingWindow(10, 60),
        lambda: SlidingLog(10, 60),
    ):
        policy = make()
        assert policy == make()
        assert len({policy, make()}) == 1
        assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301
        for attribute in ("limit", "burst", "window", "anything"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(policy, attribute, 1)


def test_kinds_with_equal_numbers_differ() -> None:
    """A fixed window is no sliding one."""
    assert len({kind(10, 60) for kind in WINDOWS}) == 3


def test_names_are_part_of_the_value() -> None:
    """Two that differ in name differ."""
    assert TokenBucket(1, name="a") != TokenBucket(1, name="b")


def test_a_changed_copy_is_checked_too() -> None:
    """Through dataclasses.replace."""
    assert dataclasses.replace(FixedWindow(1, 1), limit=5) == FixedWindow(5, 1)
    with pytest.raises(PolicyError):
        dataclasses.replace(FixedWindow(1, 1), limit=0)


@each_window
def test_its_repr_tells_its_numbers(kind: Any) -> None:
    """As one would write it."""
    assert repr(kind(10, 60)) == f"{kind.__name__}(limit=10, window=60, name=None)"


@pytest.mark.parametrize(
    ("number", "fraction"),
    [
        (1 / 3, Fraction(1, 3)),
        (0.1, Fraction(1, 10)),
        (7 / 3, Fraction(7, 3)),
        (1e-5, Fraction(1, 100_000)),
        (12.5, Fraction(25, 2)),
        (86_400, Fraction(86_400)),
        (0.333, Fraction(333, 1000)),
    ],
)
def test_numbers_mean_what_was_written(number: float, fraction: Fraction) -> None:
    """A third is a third, not the float next to it."""
    assert plain_fraction(number) == fraction


def test_any_other_float_is_taken_exactly() -> None:
    """No digit is lost."""
    for number in (math.pi, math.e * 1e-7, 0.1 + 0.2, 1e15 + 0.5):
        assert float(plain_fraction(number)) == number


def test_the_interval_is_exact() -> None:
    """Microseconds to a unit."""
    assert TokenBucket(3).interval == Fraction(1_000_000, 3)
    assert TokenBucket(1, 86_400).interval == 86_400_000_000
    assert TokenBucket(0.1, 0.3).interval == 3_000_000
