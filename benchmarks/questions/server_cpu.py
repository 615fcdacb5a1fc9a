"""What does a decision cost the server?"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from aiolimit import FixedWindow, SlidingLog, SlidingWindow, TokenBucket

from ..compare.bare import hash_call, pooled
from ..load import PLENTY, POLICY, redis_limiter, run_on_uvloop, user_keys
from ..runner import Goal, check

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from aiolimit import Limiter
    from aiolimit.policies import Policy

    from ..compare.bare import Call
    from ..runner import Bench, Table
    from ..server import Server

BATCH = 100
KEYS = 2_000
DAY = 86_400.0
HASH = "usual script, one call each"
GET = f"GET, pipelined by {BATCH}: for scale"
MOST = 0.25
ADMITTING: dict[str, Policy] = {
    "token bucket": POLICY,
    "fixed window": FixedWindow(PLENTY, DAY),
    "sliding window": SlidingWindow(PLENTY, DAY),
    "sliding log of 100": SlidingLog(100, DAY),
    "sliding log of 1,000": SlidingLog(1000, DAY),
}
REFUSING: dict[str, Policy] = {
    "token bucket": TokenBucket(rate=1, per=DAY),
    "fixed window": FixedWindow(1, DAY),
    "sliding window": SlidingWindow(1, DAY),
    "sliding log of 1": SlidingLog(1, DAY),
}


def run(bench: Bench) -> Iterator[Table]:
    """Processor time of the server's main thread, for batches of 100 keys that are there already."""
    batches = bench.size(60, 20)
    with bench.server() as server:
        for outcome, policies in (("admitted", ADMITTING), ("refused", REFUSING)):
            cases: dict[str, Callable[[], float]] = {
                HASH: partial(_fresh, server, _hash_us(server, hash_call(server), batches * 10, outcome)),
                GET: partial(_fresh, server, _get_us(server, batches)),
            }
            for name, policy in policies.items():
                cases[name] = partial(_fresh, server, _limiter_us(server, policy, batches, outcome))
            yield bench.measure(
                f"server CPU of a decision, {outcome}",
                "µs",
                cases,
                yardstick=HASH,
                goals=tuple(Goal(name, most=MOST, versus=HASH) for name in policies),
            )


def _fresh(server: Server, measure: Callable[[], Coroutine[Any, Any, float]]) -> float:
    server.flush()
    return run_on_uvloop(measure())


def _batches(count: int) -> list[list[str]]:
    keys, chance = user_keys(KEYS), random.Random(2)
    return [chance.sample(keys, BATCH) for _ in range(count)]


def _limiter_us(server: Server, policy: Policy, batches: int, outcome: str) -> Callable[[], Coroutine[Any, Any, float]]:
    async def measure() -> float:
        async with redis_limiter(server.url, policy) as limiter:
            await limiter.try_acquire_many(user_keys(KEYS))
            before = server.cpu_us()
            granted = await _granted(limiter, _batches(batches))
            spent = server.cpu_us() - before
            await limiter.backend.aclose()
        expected = batches * BATCH if outcome == "admitted" else 0
        check(granted == expected, f"{policy}: {expected} are right, {granted} were granted")
        return spent / (batches * BATCH)

    return measure


async def _granted(limiter: Limiter, batches: Sequence[list[str]]) -> int:
    granted = 0
    for batch in batches:
        decisions = await limiter.try_acquire_many(batch)
        check(all(decision.source == "redis" for decision in decisions), "a decision did not come from redis")
        granted += sum(decision.granted for decision in decisions)
    return granted


def _hash_us(server: Server, call: Call, calls: int, outcome: str) -> Callable[[], Coroutine[Any, Any, float]]:
    arguments = call.arguments if outcome == "admitted" else ("0.0000116", 1, 1)

    async def measure() -> float:
        keys = user_keys(KEYS)
        async with pooled(server, 1) as client:
            for key in keys:
                await client.evalsha(call.sha, 1, call.prefix + key, *arguments)
            before = server.cpu_us()
            granted = 0
            for number in range(calls):
                reply = await client.evalsha(call.sha, 1, call.prefix + keys[number % KEYS], *arguments)
                granted += reply[0]
            spent = server.cpu_us() - before
        check(granted == (calls if outcome == "admitted" else 0), f"the usual script granted {granted} of {calls}")
        return spent / calls

    return measure


def _get_us(server: Server, batches: int) -> Callable[[], Coroutine[Any, Any, float]]:
    async def measure() -> float:
        keys = user_keys(KEYS)
        server.admin.mset(dict.fromkeys(keys, "1:1764554400123456:1000000"))
        async with pooled(server, 1) as client:
            before = server.cpu_us()
            for batch in _batches(batches):
                pipeline = client.pipeline(transaction=False)
                for key in batch:
                    pipeline.get(key)
                check(None not in await pipeline.execute(), "a GET found nothing")
            return (server.cpu_us() - before) / (batches * BATCH)

    return measure
