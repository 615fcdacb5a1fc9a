"""Compressed time changes no decision: the compressed policy admits the same requests at the compressed times."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiolimit.cli.compressing import compress, default_speed, without_idle_time
from aiolimit.cli.exits import CommandError
from aiolimit.cli.reading import Arrival
from aiolimit.cli.replay import replay
from aiolimit.policies import FixedWindow, Policy, SlidingLog, SlidingWindow, TokenBucket

from .support import any_time

POLICIES: list[Policy] = [TokenBucket(3, 60, 5), FixedWindow(3, 60), SlidingWindow(3, 60), SlidingLog(3, 60)]
EPOCH_US = 1_709_251_140_000_000

arrivals = st.lists(
    st.tuples(st.integers(0, 120) | st.sampled_from([3_600, 86_400, 1_000_000]), st.sampled_from("ab")), min_size=1
).map(
    lambda gaps: [
        Arrival(EPOCH_US + sum(gap for gap, _ in gaps[: index + 1]) * 1_000_000, key, 1)
        for index, (_, key) in enumerate(gaps)
    ]
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@any_time
@given(wanted=arrivals)
def test_leaving_out_idle_time_changes_no_decision(policy: Policy, wanted: list[Arrival]) -> None:
    """However long the pauses; and no pause becomes longer."""
    offsets = without_idle_time(policy, wanted)
    shorter = [each._replace(at_us=wanted[0].at_us + at) for each, at in zip(wanted, offsets, strict=True)]
    assert asyncio.run(replay(policy, shorter)) == asyncio.run(replay(policy, wanted))
    assert all(at <= each.at_us - wanted[0].at_us for each, at in zip(wanted, offsets, strict=True))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("speed", [2, 50, 1000])
@any_time
@given(wanted=arrivals)
def test_compressing_changes_no_decision(policy: Policy, speed: int, wanted: list[Arrival]) -> None:
    """With speeds that divide the period into whole microseconds, decisions agree exactly, wherever windows begin."""
    compressed = compress(policy, wanted, speed)
    start_us = 1_800_000_000_000_000
    if compressed.aligned_us is not None:
        start_us += (compressed.phase_us - start_us) % compressed.aligned_us
    faster = [
        each._replace(at_us=start_us + at // speed) for each, at in zip(wanted, compressed.offsets_us, strict=True)
    ]
    assert asyncio.run(replay(compressed.policy, faster)) == asyncio.run(replay(policy, wanted))


@pytest.mark.parametrize("policy", [FixedWindow(1, 60), SlidingWindow(1, 60)], ids=str)
@pytest.mark.parametrize("speed", [7, 34_560, 59_999])
def test_windows_still_line_up_after_a_million_of_them(policy: Policy, speed: int) -> None:
    """The compressed window is a whole number of microseconds, and the speed is what makes it so."""
    compressed = compress(policy, [Arrival(EPOCH_US + 45_000_000, "a", 1)], speed)
    assert compressed.aligned_us == round(60_000_000 / speed)
    assert compressed.speed * compressed.aligned_us == pytest.approx(60_000_000, rel=1e-15)
    assert compressed.speed == pytest.approx(speed, rel=1e-3)
    assert compressed.phase_us == compressed.aligned_us * 45 // 60


def test_a_bucket_and_a_log_need_no_alignment() -> None:
    """They may begin at any moment."""
    for policy in (TokenBucket(1, 60), SlidingLog(1, 60)):
        assert compress(policy, [Arrival(EPOCH_US, "a", 1)], 7).aligned_us is None


def test_the_default_speed_makes_a_run_of_ten_seconds() -> None:
    """Of the time that is left when idle time is gone."""
    assert default_speed(TokenBucket(30, 60), [0, 1_000_000_000]) == 100


@pytest.mark.parametrize(
    ("policy", "offsets", "speed"),
    [
        (TokenBucket(1, 60), [0, 10**15], 3000),  # the period stays 20 ms
        (TokenBucket(1, 60), [0, 5_000_000], 1),  # no slower than the log
        (TokenBucket(1, 60), [0], 1),
        (TokenBucket(1, 0.01), [0, 5_000_000], 1),
        (TokenBucket(100, 60), [at * 1000 for at in range(1_000_001)], 2),  # a thousand a second become two thousand
        (FixedWindow(1, 86_400), [0, 60_000_000], 8640),  # nor is a window longer than ten seconds
    ],
)
def test_the_default_speed_stays_within_what_can_be_timed(policy: Policy, offsets: list[int], speed: float) -> None:
    """The period, the rate of the arrivals, and the wait for a window to begin."""
    assert default_speed(policy, offsets) == pytest.approx(speed, rel=1e-5)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_fastest_speed_is_named_and_works(policy: Policy) -> None:
    """A period is at least a millisecond."""
    one = [Arrival(EPOCH_US, "a", 1)]
    with pytest.raises(CommandError, match="the fastest that works is 60000"):
        compress(policy, one, 60_001)
    assert compress(policy, one, 60_000).speed == 60_000
