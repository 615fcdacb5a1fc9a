"""A replay in memory finds what the models find, request by request, and its figures are what the page says."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiolimit.cli.reading import Arrival
from aiolimit.cli.replay import queue, replay
from aiolimit.cli.tally import percentile, tally
from aiolimit.policies import FixedWindow, Policy, SlidingLog, SlidingWindow, TokenBucket
from tests.cli.support import (
    Model,
    Request,
    any_time,
    bucket,
    example_requests,
    fixed_window,
    sliding_log,
    sliding_window,
)

MODELS: list[tuple[Policy, Model]] = [
    (TokenBucket(30, 60, 10), bucket(30, 60, 10)),
    (TokenBucket(7, 3, 2), bucket(7, 3, 2)),
    (FixedWindow(5, 10), fixed_window(5, 10)),
    (SlidingWindow(5, 10), sliding_window(5, 10)),
    (SlidingLog(5, 10), sliding_log(5, 10)),
]
NAMES = ["bucket", "small bucket", "fixed", "sliding", "log"]
requests = st.lists(
    st.tuples(st.integers(0, 100_000).map(lambda ms: Fraction(ms, 1000)), st.sampled_from("ab"), st.integers(0, 6)),
    max_size=60,
).map(lambda unsorted: sorted(unsorted, key=lambda request: request[0]))


def arrivals_of(wanted: Sequence[Request]) -> list[Arrival]:
    """The same, as the command has them."""
    return [Arrival(int(at * 1_000_000), key, cost) for at, key, cost in wanted]


@pytest.mark.parametrize(("policy", "model"), MODELS, ids=NAMES)
@any_time
@given(wanted=requests)
def test_every_decision_is_the_models(policy: Policy, model: Model, wanted: list[Request]) -> None:
    """Request by request, with costs from zero to more than fits."""
    assert asyncio.run(replay(policy, arrivals_of(wanted))) == model(wanted)


@pytest.mark.parametrize(
    ("policy", "model"),
    [
        (TokenBucket(30, 60, 10), bucket(30, 60, 10)),
        (FixedWindow(30, 60), fixed_window(30, 60)),
        (SlidingWindow(30, 60), sliding_window(30, 60)),
        (SlidingLog(30, 60), sliding_log(30, 60)),
    ],
    ids=["bucket", "fixed", "sliding", "log"],
)
def test_every_decision_on_the_example_is_the_models(policy: Policy, model: Model) -> None:
    """Request by request, on the log that is shipped, and each policy refuses some."""
    wanted = example_requests()
    decided = asyncio.run(replay(policy, arrivals_of(wanted)))
    assert decided == model(wanted)
    assert not all(decided)


@any_time
@given(wanted=requests)
def test_a_queue_serves_each_at_the_first_moment_that_the_bucket_allows(wanted: list[Request]) -> None:
    """Against a bucket in fractions; the limiter works in whole microseconds, so a start may be that much later."""
    rate, burst = Fraction(1, 2), 5
    state: defaultdict[str, tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(burst), Fraction(0)))
    waits: defaultdict[str, list[Fraction]] = defaultdict(list)
    for at, key, cost in wanted:
        if cost > burst:
            continue
        level, since = state[key]
        now = max(at, since)
        level = min(Fraction(burst), level + (now - since) * rate)
        start = now + max(cost - level, Fraction(0)) / rate
        state[key] = (min(Fraction(burst), level + (start - now) * rate) - cost, start)
        waits[key].append(start - at)
    expected = [wait for key in dict.fromkeys(key for _, key, cost in wanted if cost <= burst) for wait in waits[key]]
    found = asyncio.run(queue(TokenBucket(1, 2, burst), arrivals_of(wanted)))
    assert found == pytest.approx([float(wait) for wait in expected], abs=1e-6 * (len(wanted) + 1))


@pytest.mark.parametrize(("policy", "model"), MODELS, ids=NAMES)
@any_time
@given(wanted=requests)
def test_a_queue_never_admits_more_than_the_policy(policy: Policy, model: Model, wanted: list[Request]) -> None:
    """Whoever starts at the moment the queue says would be admitted then by the model."""
    possible = [request for request in wanted if request[2] <= policy.limit]
    by_key = [[request for request in possible if request[1] == key] for key in dict.fromkeys(r[1] for r in possible)]
    waits = iter(asyncio.run(queue(policy, arrivals_of(wanted))))
    for line in by_key:
        starts = [at + Fraction(round(next(waits) * 1_000_000), 1_000_000) for at, _, _ in line]
        assert starts == sorted(starts)
        assert all(model([(start, key, cost) for start, (_, key, cost) in zip(starts, line, strict=True)]))
    assert next(waits, None) is None


def test_the_figures_count_what_they_say() -> None:
    """By hand: two a minute from a bucket of two; costs of one, but for a three that never fits."""
    policy = TokenBucket(2, 60, 2)
    wanted = [
        (Fraction(at), key, cost)
        for at, key, cost in [(0, "a", 1), (1, "a", 1), (2, "a", 1), (3, "b", 3), (4, "c", 1), (5, "a", 1)]
    ]
    arrivals = arrivals_of(wanted)
    decided = asyncio.run(replay(policy, arrivals))
    found = tally("two", policy, arrivals, decided, asyncio.run(queue(policy, arrivals)))
    assert (found.requests, found.admitted, found.refused, found.never) == (6, 3, 3, 1)
    assert (found.units, found.units_admitted) == (8, 3)
    assert found.by_key == (("a", 4, 2), ("b", 1, 1), ("c", 1, 0))
    assert [each.admitted for each in found.by_key] == [2, 0, 1]
    assert found.keys_refused == 2
    assert found.first_refused == (2_000_000, "a", 1)
    assert found.refused_share == found.by_key[0].refused_share == 0.5
    # The third of a starts when the first unit is back, at 30 s; the fourth at 60 s.
    assert (found.waits.waiting, found.waits.p50, found.waits.p95, found.waits.longest) == (2, 28.0, 55.0, 55.0)


def test_a_log_without_requests_has_figures_too() -> None:
    """Zeros, and nothing where there is no first or middle."""
    found = tally("none", FixedWindow(1, 1), [], [], [])
    assert (found.requests, found.refused_share, found.keys_refused, found.first_refused) == (0, 0.0, 0, None)
    assert (found.waits.waiting, found.waits.p50) == (0, None)


@any_time
@given(st.lists(st.integers(0, 20), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], percent: int) -> None:
    """The nearest rank, as the page defines it."""
    enough = math.ceil(len(values) * percent / 100)
    expected = min(value for value in values if sum(other <= value for other in values) >= enough)
    assert percentile(sorted(values), percent) == expected


def test_progress_is_told_for_every_arrival() -> None:
    """In both replays."""
    arrivals = [Arrival(at, str(at % 7), 1) for at in range(2500)]
    steps: list[int] = []
    asyncio.run(replay(TokenBucket(1), arrivals, steps.append))
    assert sum(steps) == 2500
    steps.clear()
    asyncio.run(queue(TokenBucket(1), arrivals, steps.append))
    assert sum(steps) == 2500
