"""What does a decision cost a caller who is alone?"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from ..compare.bare import one_by_one_us, our_call, pooled
from ..load import charged_units, checked, redis_limiter, run_on_asyncio, run_on_uvloop
from ..runner import Goal, check

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any, TypeAlias

    from ..compare.bare import Call
    from ..runner import Bench, Table
    from ..server import Server

    Way: TypeAlias = Callable[[Server, Call, int], Coroutine[Any, Any, float]]
    RunLoop: TypeAlias = Callable[[Coroutine[Any, Any, float]], float]

POOLED = "redis-py EVALSHA from a pool"
OWN = "redis-py EVALSHA on a connection of its own"
OURS = "aiolimit"
MOST = 1.1


def run(bench: Bench) -> Iterator[Table]:
    """One after the other, on both event loops."""
    questions = bench.size(1000, 400)
    with bench.server() as server:
        call = our_call(server)
        for loop, run_loop in (("asyncio", run_on_asyncio), ("uvloop", run_on_uvloop)):
            ways = {POOLED: _pooled_us, OWN: _own_us, OURS: _limiter_us}
            yield bench.measure(
                f"one caller, {loop}",
                "µs a decision",
                {name: partial(_fresh, server, run_loop, way, call, questions) for name, way in ways.items()},
                yardstick=POOLED,
                goals=(Goal(OURS, most=MOST, versus=POOLED), Goal(OURS, most=MOST, versus=OWN)),
                repeats=bench.repeats * 2,
            )


def _fresh(server: Server, run_loop: RunLoop, way: Way, call: Call, questions: int) -> float:
    server.flush()
    return run_loop(way(server, call, questions))


async def _pooled_us(server: Server, call: Call, questions: int) -> float:
    async with pooled(server) as client:
        return await one_by_one_us(client, call, questions)


async def _own_us(server: Server, call: Call, questions: int) -> float:
    async with Redis.from_url(server.url, single_connection_client=True, protocol=2, socket_timeout=None) as client:
        return await one_by_one_us(client, call, questions)


async def _limiter_us(server: Server, call: Call, questions: int) -> float:
    del call
    async with redis_limiter(server.url) as limiter:
        counts = [0]
        ask = checked(limiter, counts)
        for number in range(20):
            await ask(f"user:{number}")
        started = time.perf_counter()
        for number in range(questions):
            await ask(f"user:{number}")
        elapsed = time.perf_counter() - started
        check(counts[0] == questions + 20, f"{questions + 20} asked, {counts[0]} admitted by redis")
        charged = await charged_units(limiter, [f"user:{number}" for number in range(max(questions, 20))])
        check(charged == questions + 20, f"{questions + 20} admitted, but {charged} charged")
        await limiter.backend.aclose()
        return elapsed / questions * 1_000_000
