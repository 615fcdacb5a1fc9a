"""The load that the questions share: keys, callers, and the proof that what was measured is right."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import uvloop

from aiolimit import Limiter, RedisBackend, TokenBucket

from .runner import check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from aiolimit import Decision
    from aiolimit.policies import Policy

KEYS = 10_000
PLENTY = 1_000_000
POLICY = TokenBucket(rate=1, per=3600.0, burst=PLENTY)
"""Admits all of a benchmark, and gives nothing back while it runs: what was charged can be counted."""
DEADLINE = 10.0
"""Seconds; so long that no decision is taken without the server."""


T = TypeVar("T")


class Pace(NamedTuple):
    """How fast it went, and what it took of the client's processor."""

    per_second: float
    client_us: float


def user_keys(count: int = KEYS) -> list[str]:
    """User keys in an order that is random and always the same."""
    keys = [f"user:{number}" for number in range(count)]
    random.Random(1).shuffle(keys)
    return keys


def redis_limiter(url: str, policy: Policy = POLICY) -> Limiter:
    """A limiter on the server."""
    return Limiter(policy, RedisBackend.from_url(url, deadline=DEADLINE))


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own, as fast as there is one."""
    return uvloop.run(main)


def run_on_asyncio(main: Coroutine[Any, Any, T]) -> T:
    """Run it in the standard library's loop."""
    return asyncio.run(main)


async def pace_of(ask: Callable[[str], Awaitable[object]], callers: int, questions: int) -> Pace:
    """The pace of so many callers at once, each asking the next when the last is answered."""
    keys = user_keys()
    following = iter(range(10**9)).__next__
    each = questions // callers

    async def caller(count: int) -> None:
        for _ in range(count):
            await ask(keys[following() % KEYS])

    await asyncio.gather(*[caller(2) for _ in range(callers)])
    started, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*[caller(each) for _ in range(callers)])
    elapsed, spent = time.perf_counter() - started, time.process_time() - busy
    return Pace(each * callers / elapsed, spent / (each * callers) * 1_000_000)


def checked(limiter: Limiter, counts: list[int]) -> Callable[[str], Coroutine[Any, Any, None]]:
    """`try_acquire` that counts its admissions and refuses an answer that did not come from the server."""
    try_acquire = limiter.try_acquire

    async def ask(key: str) -> None:
        decision = await try_acquire(key)
        if decision.source == "redis" and decision.allowed:
            counts[0] += 1

    return ask


async def limiter_pace(url: str, callers: int, questions: int) -> Pace:
    """The pace of a limiter; every unit of them is found on the server afterwards."""
    async with redis_limiter(url) as limiter:
        counts = [0]
        pace = await pace_of(checked(limiter, counts), callers, questions)
        expected = callers * 2 + questions // callers * callers
        check(counts[0] == expected, f"{expected} asked, {counts[0]} admitted by redis")
        charged = await charged_units(limiter, user_keys())
        check(charged == expected, f"{expected} admitted, but {charged} charged")
        await limiter.backend.aclose()
        return pace


async def charged_units(limiter: Limiter, keys: Sequence[str]) -> int:
    """How many units all these keys have in use."""
    decisions: list[Decision] = []
    for start in range(0, len(keys), 1000):
        decisions += await asyncio.gather(*[limiter.peek(key) for key in keys[start : start + 1000]])
    check(all(decision.source == "redis" for decision in decisions), "a peek was not answered by redis")
    return sum(decision.limit - decision.remaining for decision in decisions)
