"""What Hypothesis draws: policies, and sequences of questions at moments."""

from __future__ import annotations

import math
from typing import NamedTuple

from hypothesis import strategies as st

from aiolimit import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.algorithms import CHARGE, MAX_EXACT, PEEK, REFUND, TAKE, UP_TO, Rule
from aiolimit.policies import Policy

BEGIN_US = 1_764_554_400_123_456
END_US = 4 * 10**15
"""No question is asked later: the year 2096."""
KEYS = ("a", "b", "c")
TO_EDGE = math.inf

_limits = st.sampled_from([1, 2, 3, 5, 10, 100, 1000, 10**6, 10**9]) | st.integers(1, 50)
_small_limits = st.sampled_from([1, 2, 3, 5, 10, 50, 127, 128, 129, 200, 1000]) | st.integers(1, 20)
_rates = st.sampled_from([1, 3, 0.7, 7 / 3, 100, 10**6, 0.01, 1 / 86_400, 10]) | st.floats(0.001, 1e6)
_long = st.sampled_from([1, 1.5, 7, 60, 3600, 86_400, 315_360_000])
_any_window = _long | st.sampled_from([0.001, 0.0025, 0.05, 0.333])


def buckets(per: st.SearchStrategy[float]) -> st.SearchStrategy[Policy]:
    """Token buckets of all sizes that a policy may have."""
    return st.tuples(_rates, per, _limits).filter(lambda b: b[0] / b[1] > 1e-8).map(lambda b: TokenBucket(*b))


def policies(*, short_windows: bool = True) -> st.SearchStrategy[Policy]:
    """Policies of every kind; with ``short_windows`` down to a millisecond."""
    windows = _any_window if short_windows else _long
    return st.one_of(
        buckets(windows),
        st.builds(FixedWindow, _limits, windows),
        st.builds(SlidingWindow, _limits, windows),
        st.builds(SlidingLog, _small_limits, windows),
    )


class Change(NamedTuple):
    """How a policy is changed: each number times a factor."""

    units: float
    time: float

    def of(self, policy: Policy, shortest: float) -> Policy:
        """The changed policy of the same kind."""
        if isinstance(policy, TokenBucket):
            burst = min(max(1, int(policy.limit * self.units)), 10**9)
            per = min(max(policy.per * self.time, shortest), 3e8)
            return TokenBucket(min(max(policy.rate * self.units, per * 1e-8), 1e6), per, burst)
        limit = min(max(1, int(policy.limit * self.units)), 60_000 if isinstance(policy, SlidingLog) else policy.most)
        return type(policy)(limit, min(max(policy.window * self.time, shortest), 3e8))


changes = st.builds(Change, st.sampled_from([1, 2, 0.5, 3, 0.1, 10]), st.sampled_from([1, 1, 1, 2, 0.75, 10, 0.1]))


class Step(NamedTuple):
    """One question, in terms of whatever policy it meets."""

    wait: float
    """In periods of the policy, at least a microsecond each way but for 0; `TO_EDGE` is until the next one starts."""
    op: int
    costs: tuple[tuple[str, float], ...]
    """Keys, and costs in limits of the policy."""
    change: Change | None

    def wait_us(self, period_us: int, now: int) -> int:
        """How far the clock moves before it."""
        if self.wait == TO_EDGE:
            return period_us - now % period_us
        return int(math.copysign(math.ceil(abs(self.wait) * period_us), self.wait)) if self.wait else 0

    def costs_for(self, rule: Rule) -> list[int]:
        """The costs in units, none above what may be asked."""
        costs = [_units(cost, rule.limit) for _, cost in self.costs]
        return [min(cost, rule.limit) for cost in costs] if self.op in {TAKE, PEEK} else costs


def _units(cost: float, limit: int) -> int:
    if cost <= 0:
        return int(-cost)  # so many units
    return min(math.ceil(cost * limit), MAX_EXACT)


_costs = st.sampled_from([0, -1, -1, -2, -3, 0.5, 1, 1.0]) | st.floats(0.001, 1)
_any_costs = _costs | st.sampled_from([1.5, 3, 1e16])
_forward = st.sampled_from([0, 0, 1e-12, 0.5, 1, 2, TO_EDGE]) | st.floats(1e-6, 1) | st.floats(1, 4)
_backward = st.sampled_from([-1e-12, -0.1, -1, -60]) | st.floats(-1, -1e-6)


def steps(
    *,
    backward: bool = False,
    change: bool = False,
    ops: tuple[int, ...] = (TAKE, UP_TO, PEEK, CHARGE, REFUND),
    keys: int = 1,
) -> st.SearchStrategy[list[Step]]:
    """Sequences of questions: mostly to take, of several keys at once with ``keys``."""
    waits = _forward | _backward if backward else _forward
    taking = [op for op in ops if op in {TAKE, PEEK}]
    costs = st.lists(st.tuples(st.sampled_from(KEYS[: 1 if keys == 1 else 3]), _costs), min_size=1, max_size=keys)
    any_costs = st.lists(
        st.tuples(st.sampled_from(KEYS[: 1 if keys == 1 else 3]), _any_costs), min_size=1, max_size=keys
    )
    changed = st.none() | st.none() | st.none() | changes if change else st.none()
    asked = st.one_of(
        st.builds(Step, waits, st.just(TAKE), costs.map(tuple), changed),
        st.builds(Step, waits, st.sampled_from(taking), costs.map(tuple), changed),
        st.builds(Step, waits, st.sampled_from(ops), any_costs.map(tuple), changed),
    )
    return st.lists(asked, min_size=1, max_size=30)


def period_us(policy: Policy) -> int:
    """A window; or the time in which a bucket fills, or one unit comes, at most a year."""
    if isinstance(policy, TokenBucket):
        return max(1, min(int(policy.interval * policy.limit), 31_536_000_000_000))
    return round(policy.window * 1_000_000)
