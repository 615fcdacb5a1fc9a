"""How long does the longest single command hold up the server?"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiolimit import Limiter, SlidingLog

from ..compare.sorted_set import fill
from ..load import redis_limiter, run_on_uvloop
from ..runner import Goal, Table, check

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from ..runner import Bench
    from ..server import Server

LIMIT = 1_000_000
WINDOW = 3600.0
SHORT = 4.0
"""Seconds of the window that is waited for."""
KEY = "user:1234"
MOST_MS = 5.0


def run(bench: Bench) -> Iterator[Table]:
    """The slowest entry of SLOWLOG in each step of a sliding log's life, with a million units."""
    steps: dict[str, Callable[[Server], Coroutine[Any, Any, float]]] = {
        "one call that charges the whole limit": _whole,
        "a call while it fills up, 500 units each": _filling,
        "a call on the full log, refused": _refused,
        "the first call after an idle window": _returning,
        "the first charge under a lower limit": _lowered,
        "the first charge under a higher limit": _raised,
        "the same, with the oldest unit in the middle of the ring": _raised_in_the_middle,
        "deleted": _deleted,
        "expired, in whole milliseconds": _expired,
    }
    sets = {"sorted set, trimmed": _trimmed_ms, "sorted set, deleted": _unset_ms}
    rows: dict[str, list[float]] = {name: [] for name in (*steps, *sets)}
    with bench.server() as server:
        server.admin.config_set("slowlog-log-slower-than", 0)
        server.admin.config_set("slowlog-max-len", 10_000)
        server.admin.config_set("latency-monitor-threshold", 1)
        for _ in range(1 if bench.quick else bench.repeats):
            for name, step in steps.items():
                server.flush()
                rows[name].append(run_on_uvloop(step(server)))
            for name, usual in sets.items():
                server.flush()
                rows[name].append(usual(server))
    goals = tuple(Goal(name, most=MOST_MS) for name in steps)
    yield Table(f"longest command, sliding log of {LIMIT:,}", "ms", rows, goals=goals)


def _longest_ms(server: Server, *names: bytes) -> float:
    entries = server.admin.slowlog_get(10_000)
    durations = [int(entry["duration"]) for entry in entries if entry["command"].split()[0].upper() in names]
    return max(durations) / 1000


def _scripts_ms(server: Server) -> float:
    return _longest_ms(server, b"EVALSHA", b"EVAL")


async def _charge(limiter: Limiter, units: int) -> None:
    decision = await limiter.try_acquire(KEY, units)
    check(decision.allowed and decision.source == "redis", f"{units} units were not admitted: {decision}")


async def _whole(server: Server) -> float:
    async with redis_limiter(server.url, SlidingLog(LIMIT, WINDOW)) as limiter:
        server.admin.slowlog_reset()
        await _charge(limiter, LIMIT)
        longest = _scripts_ms(server)
        check(not await limiter.try_acquire(KEY), "the log is not full")
        await limiter.backend.aclose()
        return longest


async def _filling(server: Server) -> float:
    async with redis_limiter(server.url, SlidingLog(LIMIT, WINDOW)) as limiter:
        server.admin.slowlog_reset()
        for _ in range(LIMIT // 500):
            await _charge(limiter, 500)
        longest = _scripts_ms(server)
        check(not await limiter.try_acquire(KEY), "the log is not full")
        await limiter.backend.aclose()
        return longest


async def _refused(server: Server) -> float:
    async with redis_limiter(server.url, SlidingLog(LIMIT, WINDOW)) as limiter:
        await _charge(limiter, LIMIT)
        server.admin.slowlog_reset()
        for _ in range(20):
            decision = await limiter.try_acquire(KEY)
            check(not decision and decision.source == "redis", f"the full log admitted: {decision}")
        longest = _scripts_ms(server)
        await limiter.backend.aclose()
        return longest


async def _returning(server: Server) -> float:
    """All units but the last have aged out: the key is there still, and a million units go at once."""
    async with redis_limiter(server.url, SlidingLog(LIMIT, SHORT)) as limiter:
        started = time.monotonic()
        await _charge(limiter, LIMIT - 1)
        await asyncio.sleep(SHORT / 2)
        await _charge(limiter, 1)
        await asyncio.sleep(started + SHORT + 0.5 - time.monotonic())
        server.admin.slowlog_reset()
        decision = await limiter.try_acquire(KEY)
        longest = _scripts_ms(server)
        check(decision.allowed and decision.remaining == LIMIT - 2, f"the idle log answered {decision}")
        await limiter.backend.aclose()
        return longest


async def _lowered(server: Server) -> float:
    return await _changed(server, LIMIT, LIMIT - 1, beyond=0)


async def _raised(server: Server) -> float:
    return await _changed(server, LIMIT - 1, LIMIT, beyond=0)


async def _raised_in_the_middle(server: Server) -> float:
    return await _changed(server, LIMIT - 1, LIMIT, beyond=LIMIT // 2)


async def _changed(server: Server, old: int, new: int, *, beyond: int) -> float:
    """A full log meets another limit. What is charged beyond its limit has overwritten the oldest units."""
    async with redis_limiter(server.url, SlidingLog(old, WINDOW)) as limiter:
        await _charge(limiter, old)
        await limiter.charge(KEY, beyond)
        changed = Limiter(SlidingLog(new, WINDOW), limiter.backend)
        server.admin.slowlog_reset()
        decision = await changed.charge(KEY, 1)
        longest = _scripts_ms(server)
        check(decision.source == "redis" and decision.remaining == 0, f"the log answered {decision}")
        check(not await changed.try_acquire(KEY), "the log is not full under its new limit")
        await limiter.backend.aclose()
        return longest


async def _deleted(server: Server) -> float:
    async with redis_limiter(server.url, SlidingLog(LIMIT, WINDOW)) as limiter:
        await _charge(limiter, LIMIT)
        server.admin.slowlog_reset()
        await limiter.reset(KEY)
        longest = _scripts_ms(server)
        check(not server.admin.keys("*"), "the key is there still")
        await limiter.backend.aclose()
        return longest


async def _expired(server: Server) -> float:
    """The server keeps no SLOWLOG of expiries, but LATENCY has those of a millisecond or more."""
    async with redis_limiter(server.url, SlidingLog(LIMIT, WINDOW)) as limiter:
        await _charge(limiter, LIMIT)
        (key,) = server.admin.keys("*")
        server.admin.execute_command("LATENCY", "RESET")
        server.admin.pexpire(key, 50)
        await asyncio.sleep(0.5)
        check(not server.admin.info("keyspace"), "the key is there still")
        events = server.admin.execute_command("LATENCY", "LATEST")
        await limiter.backend.aclose()
    return float(max((worst for name, _, _, worst in events if name.startswith(b"expire")), default=0))


def _trimmed_ms(server: Server) -> float:
    fill(server.admin, "log", LIMIT)
    server.admin.slowlog_reset()
    removed = server.admin.zremrangebyscore("log", "-inf", "+inf")
    check(removed == LIMIT, f"{removed} of {LIMIT} were removed")
    return _longest_ms(server, b"ZREMRANGEBYSCORE")


def _unset_ms(server: Server) -> float:
    fill(server.admin, "log", LIMIT)
    server.admin.slowlog_reset()
    server.admin.delete("log")
    return _longest_ms(server, b"DEL")
