"""The rules against brute force, over every interleaving of verbs, costs and moments."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiolimit import FixedWindow, MemoryBackend, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.algorithms import CHARGE, PEEK, REFUND, TAKE, UP_TO, compile_policy
from aiolimit.algorithms.rule import MAX_WAIT_US
from aiolimit.policies import Policy

from .models import model_of
from .questions import BEGIN_US, END_US, Step, buckets, period_us, policies, steps

many = settings(max_examples=100)
HUGE = 2**40
"""A debt beyond this need not be kept exactly."""


def moved(op: int, cost: int, granted: int) -> int:
    """How many units an answer says were charged or, below zero, given back."""
    return -cost if op == REFUND else granted if op in {TAKE, UP_TO, CHARGE} else 0


@many
@given(policy=policies(), sequence=steps())
def test_never_admits_more_than_the_model(policy: Policy, sequence: list[Step]) -> None:
    """What is granted fits by brute force; and what fits by brute force is granted, but for rounding."""
    rule, model = compile_policy(policy), model_of(policy)
    state: Any = None
    now, charged, owed = BEGIN_US, 0, False
    for step in sequence:
        now += step.wait_us(period_us(policy), now)
        (cost,) = step.costs_for(rule)[:1]
        room = model.room(now)
        if step.op == CHARGE:  # a debt is kept exactly up to seven times the limit at least
            cost = max(min(cost, math.floor(7 * policy.limit + room) - 1), 0)
        state, (granted, remaining, retry_us, _) = rule.decide(state, now, step.op, cost)
        # Rounding: a bucket's numbers to one part in 100,000; the estimate's to a step of its window.
        slack = Fraction(charged + policy.limit + cost, 50_000)
        if step.op in {TAKE, UP_TO, PEEK} and cost:
            wanted = 1 if step.op == UP_TO else cost
            assert retry_us or room >= wanted
            assert granted <= max(room, Fraction(0))
            if retry_us and not owed:
                assert room - slack < wanted, (room, wanted)
        change = moved(step.op, cost, granted)
        if change > 0:
            model.charge(now, change)
            charged += change
        elif change < 0:
            model.refund(now, -change)
        left = model.room(now)
        owed = owed or left < 0
        assert 0 <= remaining <= max(left, Fraction(0))
        if not owed:
            assert remaining >= math.floor(left - slack)


@many
@given(policy=buckets(st.sampled_from([1, 60, 0.001, 86_400])), sequence=steps(ops=(TAKE, UP_TO)))
def test_a_bucket_admits_its_burst_and_rate_in_any_interval(policy: TokenBucket, sequence: list[Step]) -> None:
    """Over all pairs of moments."""
    rule = compile_policy(policy)
    state: Any = None
    now = BEGIN_US
    admitted: list[tuple[int, int]] = []
    for step in sequence:
        now += step.wait_us(period_us(policy), now)
        state, (granted, *_) = rule.decide(state, now, step.op, step.costs_for(rule)[0])
        admitted.append((now, granted))
    rate = 1 / policy.interval
    for first, (begin, _) in enumerate(admitted):
        total = 0
        for end, granted in admitted[first:]:
            total += granted
            assert total <= policy.limit + rate * (end - begin)


@many
@given(
    limits=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    kind=st.sampled_from([FixedWindow, SlidingWindow, SlidingLog]),
    sequence=steps(change=True),
)
def test_a_changed_limit_never_admits_more_than_the_model(
    limits: list[int], kind: type[FixedWindow], sequence: list[Step]
) -> None:
    """Units in use stay in use while the limit goes up and down, whoever charges and gives back in between."""
    policy = kind(limits[0], 60)
    model: Any = model_of(policy)
    rule = compile_policy(policy)
    state: Any = None
    now = BEGIN_US
    for index, step in enumerate(sequence):
        if step.change is not None:
            policy = kind(limits[index % len(limits)], 60)
            rule, model.limit = compile_policy(policy), policy.limit
        now += step.wait_us(60_000_000, now)
        cost = step.costs_for(rule)[0]
        room = model.room(now)
        state, (granted, _, retry_us, _) = rule.decide(state, now, step.op, min(cost, HUGE))
        cost = min(cost, HUGE)
        if step.op in {TAKE, UP_TO} and cost:
            assert granted <= max(room, 0)
        if step.op == PEEK and cost and not retry_us:
            assert cost <= room
        change = moved(step.op, cost, granted)
        if change > 0:
            model.charge(now, change)
        elif change < 0:
            model.refund(now, -change)


def after(policy: Policy, sequence: list[Step]) -> tuple[Any, Any, int]:
    """A rule, the state that a sequence of questions leaves, and the moment of the last one."""
    rule = compile_policy(policy)
    state: Any = None
    now = BEGIN_US
    for step in sequence:
        now = min(max(now + step.wait_us(period_us(policy), now), BEGIN_US // 2), END_US)
        state, _ = rule.decide(state, now, step.op, min(step.costs_for(rule)[0], HUGE))
    return rule, state, now


@many
@given(
    policy=policies(),
    sequence=steps(backward=True),
    op=st.sampled_from([TAKE, PEEK, UP_TO]),
    share=st.floats(0.001, 1),
)
def test_the_wait_that_is_told_suffices_and_is_tight(
    policy: Policy, sequence: list[Step], op: int, share: float
) -> None:
    """Whoever comes back then is admitted at the first try, and whoever comes 2 ms sooner is not."""
    rule, state, now = after(policy, sequence)
    cost = max(1, int(share * rule.limit))
    state, (*_, retry_us, _) = rule.decide(state, now, op, cost)
    if 0 < retry_us < MAX_WAIT_US // 2:
        then = rule.decide(copy.deepcopy(state), now + retry_us, op, cost)[1]
        assert then[2] == 0
        assert op == PEEK or then[0] >= 1
        if retry_us > 2000:
            assert rule.decide(copy.deepcopy(state), now + retry_us - 2000, op, cost)[1][2] > 0


@many
@given(policy=policies(), sequence=steps(backward=True))
def test_the_time_to_fresh_suffices_and_is_tight(policy: Policy, sequence: list[Step]) -> None:
    """Then everything fits again, as on a key never used; a moment before, it does not."""
    rule, state, now = after(policy, sequence)
    state, (*_, reset_us) = rule.decide(state, now, PEEK, 0)
    if 0 < reset_us < MAX_WAIT_US // 2:
        assert rule.decide(copy.deepcopy(state), now + reset_us, PEEK, rule.limit)[1] == (0, rule.limit, 0, 0)
        if reset_us > 2000:
            before = rule.decide(copy.deepcopy(state), now + reset_us - 2000, PEEK, 0)[1]
            assert before[3] > 0
    if reset_us == 0:
        assert rule.decide(copy.deepcopy(state), now, PEEK, rule.limit)[1] == (0, rule.limit, 0, 0)


@many
@given(policy=policies(), sequence=steps(backward=True, change=True))
def test_answers_keep_their_ranges(policy: Policy, sequence: list[Step]) -> None:
    """Whatever the clock and the limit do: remaining within the limit, times not below zero, no wait when allowed, what
    was granted gone from what remained, and a look right after that agrees.
    """
    rule = compile_policy(policy)
    state: Any = None
    now = BEGIN_US
    for step in sequence:
        if step.change is not None:
            policy = step.change.of(policy, shortest=0.001)
            rule = compile_policy(policy)
        now = min(max(now + step.wait_us(period_us(policy), now), BEGIN_US // 2), END_US)
        cost = step.costs_for(rule)[0]
        before = rule.decide(copy.deepcopy(state), now, PEEK, 0)[1][1]
        state, (granted, remaining, retry_us, reset_us) = rule.decide(state, now, step.op, cost)
        assert 0 <= remaining <= rule.limit
        assert reset_us >= 0
        assert retry_us >= 0
        assert 0 <= granted <= cost
        assert not (retry_us and granted)
        if step.op in {TAKE, UP_TO}:
            assert remaining == before - granted
        if step.op == CHARGE:
            assert remaining == max(before - granted, 0)
        if step.op == REFUND:
            assert remaining >= before
        if step.op == TAKE and retry_us == 0:
            assert granted == cost
        peeked = rule.decide(copy.deepcopy(state), now, PEEK, min(cost, rule.limit))[1]
        assert (peeked[1], peeked[3]) == (remaining, reset_us)


@many
@given(policy=policies(), sequence=steps())
def test_a_refusal_changes_nothing(policy: Policy, sequence: list[Step]) -> None:
    """On a clock that does not step back, the state after a refusal is the state before it, and no state stays none."""
    rule = compile_policy(policy)
    state: Any = None
    now = BEGIN_US
    for step in sequence:
        now += step.wait_us(period_us(policy), now)
        before = repr(state)
        state, (granted, *_) = rule.decide(state, now, step.op, step.costs_for(rule)[0])
        if not granted and step.op != REFUND:
            assert repr(state) == before


@many
@given(policy=policies(), sequence=steps(), polls=st.lists(st.floats(0, 1), max_size=8))
def test_looking_changes_nothing_that_comes_after(policy: Policy, sequence: list[Step], polls: list[float]) -> None:
    """However often a key is polled, in vain or not, in between: the same units are granted at the same moments."""
    rule = compile_policy(policy)
    state: Any = None
    watched: Any = None
    now = BEGIN_US
    for step in sequence:
        wait = step.wait_us(period_us(policy), now)
        for share in sorted(polls):
            moment = now + int(share * wait)
            for op, cost in ((PEEK, 1), (PEEK, 0), (TAKE, 0), (TAKE, rule.limit)):
                # A refused take is a poll, too; one that would be admitted is not.
                if op == PEEK or not cost or rule.decide(copy.deepcopy(watched), moment, PEEK, cost)[1][2]:
                    watched, _ = rule.decide(watched, moment, op, cost)
        now += wait
        cost = step.costs_for(rule)[0]
        state, plain = rule.decide(state, now, step.op, cost)
        watched, polled = rule.decide(watched, now, step.op, cost)
        assert plain == polled


@many
@given(policy=policies(), sequence=steps(keys=5))
def test_memory_batches_equal_the_sequence(policy: Policy, sequence: list[Step]) -> None:
    """In memory, too, many questions together get the answers that they get one by one."""
    now = BEGIN_US
    backend = MemoryBackend(clock=lambda: now)
    together, singly = backend.place("together", policy), backend.place("singly", policy)
    rule = compile_policy(policy)
    for step in sequence:
        now += step.wait_us(period_us(policy), now)
        keys, costs = [key for key, _ in step.costs], step.costs_for(rule)
        answers = together.ask_many(step.op, keys, costs)
        assert answers == [singly.ask(step.op, key, cost) for key, cost in zip(keys, costs, strict=True)]


RATES = [(1, 86_400), (1, 3600), (0.7, 1), (7 / 3, 1), (3, 1), (100, 60), (1000, 1), (12_345.678, 1), (10**6, 1)]


@pytest.mark.parametrize("polls", [1, 2.7, 20], ids=lambda polls: f"{polls} polls a unit")
@pytest.mark.parametrize("burst", [2, 7, 10**6])
@pytest.mark.parametrize(("rate", "per"), RATES, ids=lambda number: f"{number:.6g}")
def test_a_bucket_yields_its_rate_however_it_is_polled(rate: float, per: float, burst: int, polls: float) -> None:
    """From a day for a unit to a microsecond: within 1 % in the long run, polled ever so often."""
    policy = TokenBucket(rate, per, burst)
    rule = compile_policy(policy)
    pause = policy.interval / Fraction(polls)
    state, _ = rule.decide(None, BEGIN_US, CHARGE, burst)
    total = 0
    for number in range(1, int(300 * polls) + 1):
        state, answer = rule.decide(state, BEGIN_US + math.ceil(number * pause), UP_TO, 10)
        total += answer[0]
    assert 297 <= total <= 301


@pytest.mark.parametrize("burst", [1, 7, 10**6])
@pytest.mark.parametrize(("rate", "per"), RATES, ids=lambda number: f"{number:.6g}")
def test_a_bucket_yields_its_rate_to_those_who_wait_as_told(rate: float, per: float, burst: int) -> None:
    """Each unit at the first try. A bucket of one loses what is less than a microsecond, the clock's own grain."""
    policy = TokenBucket(rate, per, burst)
    rule = compile_policy(policy)
    now = BEGIN_US
    state, _ = rule.decide(None, now, CHARGE, burst)
    for _ in range(300):
        now += rule.decide(state, now, PEEK, 1)[1][2]
        state, answer = rule.decide(state, now, TAKE, 1)
        assert answer[0] == 1
    grain = 300 if burst == 1 else 2
    assert 300 * policy.interval <= now - BEGIN_US <= 300 * policy.interval * Fraction(101, 100) + grain


@pytest.mark.parametrize("window", [0.001, 0.25, 1, 60, 86_400, 315_360_000], ids=lambda window: f"{window}s")
@pytest.mark.parametrize("limit", [1, 2, 10, 1000])
@pytest.mark.parametrize("kind", [FixedWindow, SlidingWindow, SlidingLog])
def test_a_window_yields_its_limit_however_it_is_polled(kind: type[Policy], limit: int, window: float) -> None:
    """Over many windows within 1 %; the estimate of a sliding window, which the last full one never quite leaves,
    yields one unit less in each.
    """
    window_us = round(window * 1_000_000)
    rule = compile_policy(kind(limit, window))
    begin = window_us * (BEGIN_US // window_us)
    for polls in (400, 1000):
        pause = Fraction(window_us, min(polls, window_us))
        state: Any = None
        total, number = 0, 0
        while number * pause < 12 * window_us:
            state, answer = rule.decide(state, begin + math.floor(number * pause), UP_TO, limit)
            total += answer[0]
            number += 1
        if kind is SlidingWindow:
            assert 6 <= total <= 12 * limit
            assert total >= 12 * (limit - 1) * 0.99
        else:
            assert 12 * limit * 0.99 <= total <= 12 * limit
