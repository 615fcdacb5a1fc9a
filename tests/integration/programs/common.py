"""What the programs share: a limiter that is made as the module is loaded."""

from __future__ import annotations

import asyncio

import redis.asyncio

from aiolimit import Limiter, RedisBackend

DEADLINE = 30.0
HOWS = ("url", "client", "blocking")


def limiter_of(url: str, how: str) -> Limiter:
    """A hundred units an hour of its own, on a backend made from a URL, or from a client of the application."""
    if how == "url":
        backend = RedisBackend.from_url(url, deadline=DEADLINE)
    elif how == "blocking":
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=2)
        backend = RedisBackend(client=pool, deadline=DEADLINE)
    else:
        backend = RedisBackend(client=redis.asyncio.Redis.from_url(url), deadline=DEADLINE)
    return Limiter("100/h", backend, name=how, failure="closed")


async def admitted(limiter: Limiter, tries: int, key: str = "k") -> int:
    """How many of so many tries the server admits, half of them at once and half one after another."""
    decisions = await asyncio.gather(*(limiter.try_acquire(key) for _ in range(tries // 2)))
    decisions += [await limiter.try_acquire(key) for _ in range(tries - tries // 2)]
    assert {decision.source for decision in decisions} == {"redis"}
    return sum(map(bool, decisions))
