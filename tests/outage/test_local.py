"""`local`: four processes with a quarter each keep the limit together while the server is away, and when it is back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest

from aiolimit import CircuitBreaker, FixedWindow, Limiter, RedisBackend, SlidingLog, TokenBucket
from aiolimit.policies import Policy

from ..conformance.stores import kind_name
from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .faults import DEADLINE, charged, disabled, recovered

only_redis = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)
PROCESSES = 4
IN_FLIGHT = 8
"""How many answers may be stamped in the window after the one in which they were decided."""


def quarters(server: Server, policy: str) -> tuple[list[tuple[float, str]], float, float]:
    """Run the four through an outage of 1.5 seconds: their admissions in time, and when it began and ended."""
    order = {"url": server.url(), "policy": policy, "seconds": 4.0, "every": 0.01}
    command = [sys.executable, "-W", "error", "-m", "tests.outage.quarter", json.dumps(order)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    time.sleep(1.0)
    server.pause()
    away = time.time()
    time.sleep(1.5)
    back = time.time()
    server.resume()
    told = [json.loads(one.communicate(timeout=30)[0]) for one in running]
    assert [one.returncode for one in running] == [0] * PROCESSES
    return sorted((when, source) for process in told for when, source in process), away, back


@only_redis
def test_four_quarters_of_a_bucket(own_server: OwnServer) -> None:
    """Over any stretch of time no more than the burst and what the rate gives is admitted; except that those who find
    the server back first may have up to one burst more, which the others' charges then take back.
    """
    rate, burst = 100, 20
    admitted, away, back = quarters(own_server(), str(TokenBucket(rate, 1, burst=burst)))
    times = [when for when, _ in admitted]
    for first, start in enumerate(times):
        for last in range(first, len(times), 10):
            most = burst + rate * (times[last] - start) + IN_FLIGHT
            if start < back < times[last]:
                most += burst
            assert last - first + 1 <= most
    assert len(times) <= burst + rate * (times[-1] - times[0]) + IN_FLIGHT
    outage = Counter(source for when, source in admitted if away + 0.3 < when < back)
    assert set(outage) == {"fallback"}
    assert outage["fallback"] >= 0.7 * rate * (back - away - 0.3)  # and it is not just refusing
    assert {source for when, source in admitted if when > back + 1.0} == {"redis"}


@only_redis
def test_four_quarters_of_a_window(own_server: OwnServer) -> None:
    """No window has more than the limit; except that in which the server comes back, where those who find it first may
    use what the others have not yet told it of.
    """
    limit, window = 40, 0.5
    admitted, _, back = quarters(own_server(), str(FixedWindow(limit, window)))
    found = Counter(int(when / window) for when, _ in admitted)
    for number, count in found.items():
        most = limit + IN_FLIGHT
        if number == int(back / window):
            most += limit * 3 // 4
        assert count <= most
    assert len(admitted) <= limit * (len(found) + 1) + IN_FLIGHT
    assert all(second - first == 1 for first, second in pairwise(sorted(found)))
    assert {source for when, source in admitted if when > back + 1.0} == {"redis"}


@only_redis
@pytest.mark.parametrize(
    "policy", [TokenBucket(100, 3600), FixedWindow(100, 3600), SlidingLog(100, 3600)], ids=kind_name
)
async def test_what_was_admitted_is_charged_afterwards(policy: Policy, wire: FaultProxy, backend_of: BackendOf) -> None:
    """By every verb that spends; what went to the server before stays as it is."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter(policy, backend, failure="local", share=0.5)
    assert (await limiter.try_acquire("k", 10)).source == "redis"
    wire.silent(True)
    wire.cut()
    decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(60)))
    assert sum(map(bool, decisions)) == 40
    await limiter.charge("l", 7)
    await limiter.acquire_up_to("m", 100)
    wire.silent(False)
    wire.cut()
    await recovered(limiter)
    assert await charged(limiter, ["k", "l", "m"]) == [50, 7, 50]


@only_redis
async def test_many_keys_are_charged_without_harm_to_callers(server: Server, backend_of: BackendOf) -> None:
    """Twenty thousand: callers are decided by the server in time meanwhile, and each key is charged once."""
    backend = backend_of(server.url(), deadline=0.5, breaker=CircuitBreaker(failures=2), listeners=[])
    limiter = Limiter("100/h", backend, failure="local")
    await recovered(limiter)
    backend.breaker.force_open()
    keys = [f"k{number}" for number in range(20_000)]
    for start in range(0, len(keys), 1_000):
        await limiter.try_acquire_many(keys[start : start + 1_000])
    backend.breaker.reset()
    sources: Counter[str] = Counter()
    await limiter.peek("first")
    while limiter._settling is not None:
        sources[(await limiter.try_acquire("caller", 0)).source] += 1
        await asyncio.sleep(0.002)
    assert set(sources) == {"redis"}
    assert (backend.stats.timeouts, backend.stats.failures) == (0, 0)
    assert set(await charged(limiter, keys)) == {1}


@only_redis
async def test_closing_ends_the_settling(server: Server, backend_of: BackendOf) -> None:
    """A backend that was closed is not opened again by what is still to be charged."""
    backend = RedisBackend.from_url(server.url(), deadline=5, listeners=[])
    limiter = Limiter("100/h", backend, failure="local")
    await recovered(limiter)
    backend.breaker.force_open()
    await limiter.try_acquire_many([f"k{number}" for number in range(2_000)])
    backend.breaker.reset()
    tasks = len(asyncio.all_tasks())
    await limiter.peek("again")
    await backend.aclose()
    opened = backend.stats.connections
    await asyncio.sleep(0.2)
    assert backend.stats.connections == opened
    assert len(asyncio.all_tasks()) < tasks
    await backend.aclose()


@only_redis
async def test_waiters_do_not_all_go_when_the_server_is_back(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Forty wait for their turn through the outage: they go at the limit's pace, and ask little."""
    breaker = CircuitBreaker(open_for=0.1, max_open_for=0.1)
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker, listeners=[])
    limiter = Limiter(TokenBucket(40, 1, burst=1), backend, failure="local", share=0.5)
    await recovered(limiter)
    wire.silent(True)
    wire.cut()
    went: list[float] = []

    async def waiter() -> None:
        await limiter.acquire("k")
        went.append(time.monotonic())

    calls = backend.stats.calls
    waiting = [asyncio.create_task(waiter()) for _ in range(40)]
    await asyncio.sleep(0.6)
    back = time.monotonic()
    wire.silent(False)
    wire.cut()
    await asyncio.gather(*waiting)
    after = [when for when in went if when > back]
    assert len(after) >= 10
    for count, when in enumerate(after):
        assert count <= 40 * (when - back) + 4
    assert backend.stats.calls - calls <= 40 * 3 + 20
