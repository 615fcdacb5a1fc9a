"""A sliding log of very many units stays small, and never holds the server up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiolimit import Limiter, SlidingLog

from ..conformance.stores import PATIENCE
from ..support.servers import Server
from .conftest import BackendOf

WINDOW = 2.0


def longest_call_us(server: Server) -> int:
    """The longest script call since the log was reset."""
    slow: list[dict[str, Any]] = server.admin.slowlog_get(1000)
    return max((int(entry["duration"]) for entry in slow if entry["command"].startswith(b"EVAL")), default=0)


def trim_us(server: Server, units: int) -> int:
    """How long the usual log, a sorted set, takes to let so many units go."""
    fill = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i, i) end redis.call('PEXPIRE', KEYS[1], 60000)"
    server.admin.eval(fill, 1, "sorted", units)
    server.admin.slowlog_reset()
    server.admin.zremrangebyscore("sorted", "-inf", units - 1)
    slow: list[dict[str, Any]] = server.admin.slowlog_get(1000)
    return max(int(entry["duration"]) for entry in slow if entry["command"].startswith(b"ZREMRANGEBYSCORE"))


@pytest.mark.parametrize("limit", [100_000, 1_000_000])
async def test_letting_a_full_log_age_is_no_stall(
    limit: int, server: Server, backend_of: BackendOf, record_property: Any
) -> None:
    """Filled, idle for a window, used again: far from what trimming a sorted set of a hundred thousand takes."""
    server.admin.config_set("slowlog-log-slower-than", 0)
    server.admin.config_set("slowlog-max-len", 10_000)
    limiter = Limiter(SlidingLog(limit, WINDOW), backend_of(server.url()), failure="closed")
    trim = trim_us(server, 100_000)
    server.admin.slowlog_reset()
    step = 1000
    for _ in range(limit // step // 50):
        await limiter.try_acquire_many([("k", step)] * 50)
    filling = longest_call_us(server)
    server.admin.slowlog_reset()
    (key,) = (key for key in server.admin.scan_iter() if key != b"sorted")
    await limiter.try_acquire("k")  # keeps the key, while the rest of it ages
    async with asyncio.timeout(PATIENCE):
        while (await limiter.try_acquire("k")).remaining < limit // 2:  # noqa: ASYNC110  (it ages in the server)
            await asyncio.sleep(0.05)
    aging = longest_call_us(server)
    record_property("us", {"trim of a sorted set": trim, "filling": filling, "aging": aging})
    assert aging < trim / 2
    assert server.admin.memory_usage(key) <= 7 * limit * 1.3 + 1000


async def test_refused_traffic_does_not_grow_a_log(server: Server, backend_of: BackendOf) -> None:
    """A hundred thousand refusals."""
    limiter = Limiter(SlidingLog(100, 3600), backend_of(server.url(), deadline=60), failure="closed")
    await limiter.try_acquire("k", 100)
    (key,) = server.admin.keys()
    dumped, size = server.admin.dump(key), server.admin.memory_usage(key)
    for _ in range(10):
        assert not any(await limiter.try_acquire_many(["k"] * 10_000))
    assert (server.admin.dump(key), server.admin.memory_usage(key)) == (dumped, size)


@pytest.mark.parametrize(("limit", "bytes_"), [(100, 1200), (1000, 17_000), (100_000, 1_400_000)])
async def test_its_memory_is_bounded(limit: int, bytes_: int, server: Server, backend_of: BackendOf) -> None:
    """By its limit, full and over and over again."""
    limiter = Limiter(SlidingLog(limit, 3600), backend_of(server.url()), failure="closed")
    await limiter.acquire_up_to("k", limit)
    (key,) = server.admin.keys()
    assert server.admin.memory_usage(key) <= bytes_
    await limiter.charge("k", limit // 2)
    await limiter.refund("k", limit)
    await limiter.acquire_up_to("k", limit)
    assert server.admin.memory_usage(key) <= bytes_
