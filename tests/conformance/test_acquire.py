"""Waiting for one's turn, on every backend and event loop. Real time is the point here, so it passes for real."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from aiolimit import Decision, Limiter, PolicyError, RateLimitExceeded
from aiolimit.backends import MemoryBackend
from aiolimit.policies import Policy

from .conftest import LimiterOf, in_memory
from .stores import MemoryStore, Store, kind_name, policies

pytestmark = pytest.mark.every_loop

SHORT = 0.15  # seconds


@pytest.fixture(params=policies(1, SHORT), ids=kind_name)
def policy(request: pytest.FixtureRequest) -> Policy:
    """One unit in each short window."""
    chosen: Policy = request.param
    return chosen


@pytest.fixture
def limiter(store: Store, policy: Policy, closing: None) -> Limiter:
    """A limiter whose clock runs with real time."""
    backend = MemoryBackend() if isinstance(store, MemoryStore) else store.backend
    return Limiter(policy, backend, failure="closed")


async def test_waits_until_it_is_admitted(limiter: Limiter) -> None:
    """The second unit comes when the policy gives it, and the third in turn."""
    for _ in range(3):
        decision = await limiter.acquire("k")
        assert (decision.allowed, decision.granted, decision.retry_after) == (True, 1, 0.0)
    assert not await limiter.try_acquire("k")


async def test_is_an_async_context_manager(limiter: Limiter) -> None:
    """Entering waits, leaving gives nothing back, and an error inside comes through."""
    async with limiter.acquire("k") as decision:
        assert isinstance(decision, Decision)
        assert decision.granted == 1
    with pytest.raises(LookupError):
        async with limiter.acquire("k"):
            raise LookupError
    assert not await limiter.try_acquire("k")


async def test_with_no_time_it_decides_like_try_acquire(limiter: Limiter) -> None:
    """Admitted when it fits; else an error at once, with the refusal."""
    assert await limiter.acquire("k", timeout=0)
    with pytest.raises(RateLimitExceeded) as refused:
        await limiter.acquire("k", timeout=0)
    decision = refused.value.decision
    assert (decision.allowed, decision.granted) == (False, 0)
    assert decision.retry_after
    assert decision.retry_after > 0


async def test_a_wait_past_the_timeout_fails_at_once(limiter_of: LimiterOf) -> None:
    """There is no use in sleeping for what cannot come in time."""
    limiter = limiter_of("1/h log")
    await limiter.acquire("k")
    begin = time.monotonic()
    with pytest.raises(RateLimitExceeded, match="past its timeout") as refused:
        await limiter.acquire("k", timeout=60)
    assert time.monotonic() - begin < 30
    assert refused.value.decision.retry_after == pytest.approx(3600, abs=30)


async def test_one_key_is_served_in_order(limiter_of: LimiterOf, store: Store) -> None:
    """Whoever came first goes first, text and bytes of one key alike."""
    backend = MemoryBackend() if isinstance(store, MemoryStore) else store.backend
    limiter = Limiter("50/s burst 1", backend, failure="closed")
    served: list[int] = []

    async def caller(number: int) -> None:
        await limiter.acquire("k" if number % 2 else b"k")
        served.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(caller(number))
    assert served == list(range(8))


@in_memory
async def test_a_cancelled_waiter_takes_nothing(store: Store) -> None:
    """The one behind it is served, and nothing is left of the line."""
    limiter = Limiter("20/s burst 1")
    await limiter.acquire("k")
    first, second = (asyncio.ensure_future(limiter.acquire("k")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    with contextlib.suppress(asyncio.CancelledError):
        await first
    assert first.cancelled()
    assert len(limiter._line) == 0


async def test_an_impossible_cost_raises_at_once(limiter: Limiter) -> None:
    """With and without a timeout, and it takes no place in the line."""
    for timeout in (None, 1):
        with pytest.raises(PolicyError, match="cost 2 can never be admitted"):
            await limiter.acquire("k", 2, timeout=timeout)
    assert await limiter.try_acquire("k")


async def test_cost_zero_never_waits(limiter: Limiter) -> None:
    """Nothing asked for fits at any time."""
    await limiter.acquire("k")
    assert (await limiter.acquire("k", 0, timeout=0)).granted == 0
