"""Other limiters on PyPI, each in the fastest way that its documentation shows."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..load import KEYS, PLENTY, pace_of
from ..runner import SkippedError, check
from .bare import POOL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from ..load import Pace
    from ..server import Server


def require(package: str, distribution: str) -> None:
    """Say which package to install."""
    if find_spec(package) is None:
        raise SkippedError(f"{distribution} is not installed: pip install {distribution}")


@asynccontextmanager
async def limits_on_redis(server: Server, limit: int) -> AsyncGenerator[Callable[[str], Awaitable[bool]], None]:
    """`limits`: asyncio storage on redis-py, sliding window counter."""
    from limits import RateLimitItemPerHour  # noqa: PLC0415  (an optional peer)
    from limits.aio.storage import RedisStorage  # noqa: PLC0415
    from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415
    from redis.asyncio import BlockingConnectionPool  # noqa: PLC0415

    pool = BlockingConnectionPool.from_url(server.url, max_connections=POOL, timeout=None, protocol=2)
    options: dict[str, Any] = {"connection_pool": pool}
    storage = RedisStorage(f"async+{server.url}", implementation="redispy", **options)
    strategy = SlidingWindowCounterRateLimiter(storage)
    item = RateLimitItemPerHour(limit)

    async def ask(key: str) -> bool:
        return await strategy.hit(item, key)

    try:
        yield ask
    finally:
        await pool.disconnect()


@asynccontextmanager
async def throttled_on_redis(server: Server, limit: int) -> AsyncGenerator[Callable[[str], Awaitable[bool]], None]:
    """`throttled-py`: asyncio store, GCRA."""
    from throttled.asyncio import RateLimiterType, RedisStore, Throttled, rate_limiter  # noqa: PLC0415

    kwargs = {"max_connections": POOL, "timeout": None, "protocol": 2}
    pool = "redis.asyncio.BlockingConnectionPool"
    store = RedisStore(server=server.url, options={"CONNECTION_POOL_CLASS": pool, "CONNECTION_POOL_KWARGS": kwargs})
    quota = rate_limiter.per_hour(limit, burst=limit)
    throttle = Throttled(using=RateLimiterType.GCRA.value, quota=quota, store=store)

    async def ask(key: str) -> bool:
        return not (await throttle.limit(key)).limited

    try:
        yield ask
    finally:
        client: Any = store._backend.get_client()  # noqa: SLF001  (it has no public way to close)
        await client.connection_pool.disconnect()


PEERS = {
    "limits": ("limits", limits_on_redis),
    "throttled-py": ("throttled", throttled_on_redis),
}


async def peer_pace(name: str, server: Server, callers: int, questions: int) -> Pace:
    """The pace of a peer, after seeing that it admits what it should and no more."""
    package, connect = PEERS[name]
    require(package, name)
    async with connect(server, 10) as ask:
        admitted = [await ask("checked") for _ in range(15)]
        check(admitted == [True] * 10 + [False] * 5, f"{name} admitted {sum(admitted)} of 15 at a limit of 10")
    server.flush()
    async with connect(server, PLENTY) as ask:
        admitted_count = 0

        async def counting(key: str) -> None:
            nonlocal admitted_count
            if await ask(key):
                admitted_count += 1

        pace = await pace_of(counting, callers, questions)
    expected = callers * 2 + questions // callers * callers
    check(admitted_count == expected, f"{name}: {expected} asked of {KEYS} keys, {admitted_count} admitted")
    return pace
