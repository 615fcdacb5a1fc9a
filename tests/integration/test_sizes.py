"""Very many at once."""

from __future__ import annotations

import asyncio

import pytest

from aiolimit import Limiter
from aiolimit.backends.batching import MAX_KEYS_PER_CALL
from aiolimit.policies import Policy

from ..support.servers import Server
from .conftest import BackendOf


async def test_ten_thousand_callers_of_one_key_get_exactly_the_limit(
    policy: Policy, server: Server, backend_of: BackendOf
) -> None:
    """All at once, from one loop."""
    limiter = Limiter(policy, backend_of(server.url(), deadline=60), failure="closed")
    decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(10_000)))
    assert sum(map(bool, decisions)) == policy.limit
    assert {decision.source for decision in decisions} == {"redis"}


async def test_ten_thousand_callers_of_as_many_keys_each_get_theirs(server: Server, backend_of: BackendOf) -> None:
    """Each answer is for its key: the cost tells."""
    limiter = Limiter("100/h", backend_of(server.url(), deadline=60), failure="closed")
    costs = {f"k{number}": number % 100 + 1 for number in range(10_000)}
    decisions = await asyncio.gather(*(limiter.try_acquire(key, cost) for key, cost in costs.items()))
    assert [(decision.key, 100 - decision.remaining) for decision in decisions] == list(costs.items())


async def test_a_batch_of_ten_thousand_answers_in_order(policy: Policy, server: Server, backend_of: BackendOf) -> None:
    """Keys stand twice in it, and far apart."""
    limiter = Limiter(policy, backend_of(server.url(), deadline=60), failure="closed")
    items = [f"k{number % 900}" for number in range(10_000)]
    decisions = await limiter.try_acquire_many(items)
    assert [decision.key for decision in decisions] == items
    for number in (0, 99, 100, 899):
        own = [decision for decision in decisions if decision.key == f"k{number}"]
        assert [decision.allowed for decision in own] == [at < policy.limit for at in range(len(own))]


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("calls", [1, 2])
async def test_sizes_around_what_a_call_takes(calls: int, more: int, server: Server, backend_of: BackendOf) -> None:
    """One fewer, as many, one more: by hand and by so many callers."""
    limiter = Limiter("3/h", backend_of(server.url()), failure="closed")
    size = calls * MAX_KEYS_PER_CALL + more
    by_hand = await limiter.try_acquire_many([f"k{number}" for number in range(size)])
    by_callers = await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(size)))
    for decisions, remaining in ((by_hand, 2), (by_callers, 1)):
        assert [decision.key for decision in decisions] == [f"k{number}" for number in range(size)]
        assert {decision.remaining for decision in decisions} == {remaining}
