"""Policies as text: what is written parses back, and what cannot be read is refused in words."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiolimit import FixedWindow, PolicyError, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import MAX_LOG_UNITS, MAX_PERIOD, MAX_UNITS, MIN_PERIOD, Policy, parse_policies

_periods = st.one_of(
    st.floats(MIN_PERIOD, MAX_PERIOD),
    st.integers(1, int(MAX_PERIOD)),
    st.sampled_from([0.001, 0.1, 1 / 3, 2 / 3, 1.5, 60.0, 90, 3600, 86_400, 1e-3 * 7, 0.0123, 604_800]),
)
_rates = st.one_of(
    st.floats(1e-4, 1e11),
    st.integers(1, MAX_UNITS),
    st.sampled_from([1 / 3, 7 / 3, 0.1, 1e-3, 1e12, 2.5]),
)
_bursts = st.none() | st.integers(1, MAX_UNITS)


def _bucket(rate: float, per: float, burst: int | None) -> Policy:
    if burst is None and rate >= MAX_UNITS + 1:
        burst = MAX_UNITS
    return TokenBucket(max(rate, per / MAX_PERIOD * 1.1), per, burst)


_policies: st.SearchStrategy[Policy] = st.one_of(
    st.builds(_bucket, _rates, _periods, _bursts),
    st.builds(FixedWindow, st.integers(1, MAX_UNITS), _periods),
    st.builds(SlidingWindow, st.integers(1, MAX_UNITS), _periods),
    st.builds(SlidingLog, st.integers(1, MAX_LOG_UNITS), _periods),
)


@settings(max_examples=300)
@given(policy=_policies)
@example(policy=TokenBucket(1e12, 1, 5))
@example(policy=TokenBucket(1 / 3, 1 / 3, 7))
@example(policy=FixedWindow(10**9, 0.001))
@example(policy=SlidingLog(1, MAX_PERIOD))
def test_a_policy_parses_back_from_its_text(policy: Policy) -> None:
    """``str`` loses nothing but the name."""
    assert parse_policies(str(policy)) == (policy,)


@given(policies=st.lists(_policies, min_size=1, max_size=4), separator=st.sampled_from([";", ",", " ; ", ", "]))
def test_several_parse_back_in_order(policies: list[Policy], separator: str) -> None:
    """Joined by a semicolon or a comma."""
    assert parse_policies(separator.join(map(str, policies))) == tuple(policies)


@settings(max_examples=300)
@given(
    text=st.text(max_size=30)
    | st.text(alphabet="0123456789./_ esmhdpr-+bufixlog;,", max_size=20)
    | st.from_regex(
        r"[0-9_.e+-]{1,6}(/| per )[0-9_.]{0,4}[a-z]{1,3}( burst [0-9_]{1,4})?( fixed| log)?", fullmatch=True
    )
)
def test_any_other_text_is_a_policy_error(text: str) -> None:
    """Never another error, never a policy out of range; and what is read prints and reads the same."""
    found: tuple[Policy, ...] = ()
    with contextlib.suppress(PolicyError):
        found = parse_policies(text)
    assert all(policy.limit >= 1 for policy in found)
    assert not found or parse_policies("; ".join(map(str, found))) == found


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
def test_equal_text_is_an_equal_policy(scale: float) -> None:
    """Policies are values."""
    assert TokenBucket(10 * scale) == TokenBucket(10 * scale)
    assert hash(TokenBucket(10 * scale)) == hash(TokenBucket(10 * scale))
