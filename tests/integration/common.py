"""What the tests with real servers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiolimit import CircuitBreaker, Limiter

from ..conformance.stores import PATIENCE


async def until(holds: Callable[[], object], every: float = 0.0) -> None:
    """Look again and again, in each turn of the loop or after so many seconds, until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  (what is waited for happens in a server or in the package)
            await asyncio.sleep(every)


async def recovered(limiter: Limiter) -> None:
    """Ask until the server decides again."""
    async with asyncio.timeout(PATIENCE):
        while (await limiter.try_acquire("again")).source != "redis":  # noqa: ASYNC110  (see above)
            await asyncio.sleep(0.01)


async def used(limiter: Limiter, keys: Iterable[str]) -> list[int]:
    """How many units of each key are charged."""
    return [limiter.policy.limit - (await limiter.peek(key)).remaining for key in keys]


def no_breaker() -> CircuitBreaker:
    """One that stays out of the way of tests that are about something else."""
    breaker = CircuitBreaker()
    breaker.disable()
    return breaker
