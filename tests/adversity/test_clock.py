"""The server's clock is the only one, and it steps."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiolimit import FixedWindow, Limiter, RedisBackend, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import Policy

from ..conformance.stores import PATIENCE, kind_name
from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.servers import Server

SECOND = 1_000_000
HOUR = 3600 * SECOND
START = 7 * HOUR  # ahead of the true time, so that there is room to step back
KINDS = (TokenBucket, FixedWindow, SlidingWindow, SlidingLog)

every_kind = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


@pytest.fixture
def stepping(own_server: OwnServer) -> Server:
    """A server whose clock can be moved."""
    server = own_server(with_clock=True)
    server.set_clock_offset(START)
    return server


@pytest.fixture
def backend(stepping: Server, backend_of: BackendOf) -> RedisBackend:
    """A backend there."""
    return backend_of(stepping.url())


async def take(limiter: Limiter, tries: int) -> int:
    """How many of so many tries are admitted; every answer keeps its ranges."""
    decisions = await limiter.try_acquire_many(["k"] * tries)
    for decision in decisions:
        assert 0 <= decision.remaining <= decision.limit
        assert decision.reset_after >= 0
        assert decision.retry_after is not None
        assert (decision.retry_after == 0) == decision.allowed
    return sum(map(bool, decisions))


@every_kind
async def test_an_hour_back_locks_nobody_out_and_mints_nothing(
    kind: type[Policy], stepping: Server, backend: RedisBackend
) -> None:
    """Three of ten in ten seconds are used: seven fit, the next one within a period, and the key does not live for an
    hour.
    """
    limiter = Limiter(kind(10, 10), backend, failure="closed")
    assert await take(limiter, 3) == 3
    stepping.set_clock_offset(START - HOUR)
    admitted = await take(limiter, 20)
    assert admitted in {7, 8}  # a bucket may have gained one by now
    refused = await limiter.try_acquire("k")
    assert refused.retry_after is not None
    assert refused.retry_after <= (11 if kind is SlidingWindow else 10)  # its last window weighs on for a tenth
    (key,) = stepping.admin.keys()
    assert stepping.admin.pttl(key) <= 2 * 10 * 1000
    stepping.set_clock_offset(START - HOUR + round(refused.retry_after * SECOND))
    assert await limiter.try_acquire("k")


@every_kind
async def test_an_hour_forward_gives_one_burst(kind: type[Policy], stepping: Server, backend: RedisBackend) -> None:
    """As an hour of waiting would, and none when the clock comes back."""
    limiter = Limiter(kind(10, 10), backend, failure="closed")
    assert await take(limiter, 20) == 10
    stepping.set_clock_offset(START + HOUR)
    assert await take(limiter, 20) == 10
    stepping.set_clock_offset(START)
    assert await take(limiter, 20) <= 1


@every_kind
async def test_steps_back_never_add_up(kind: type[Policy], stepping: Server, backend: RedisBackend) -> None:
    """However often and far the clock goes back, no more than the limit is admitted, and not less."""
    limiter = Limiter(kind(20, 3600), backend, failure="closed")
    total, offset = 0, START
    for back in (50_000, SECOND, 50_000, HOUR, 60 * SECOND, 50_000, HOUR):
        total += await take(limiter, 4)
        offset -= back
        stepping.set_clock_offset(offset)
    assert total + await take(limiter, 20) == 20


@every_kind
async def test_jitter_refuses_nobody_for_longer_than_itself(
    kind: type[Policy], stepping: Server, backend: RedisBackend
) -> None:
    """At a hundred a second, 50 ms back and forth: what is refused fits after the jitter and its own wait."""
    limiter = Limiter(kind(100, 1), backend, failure="closed")
    start = time.monotonic()
    admitted = 0
    for number in range(20):
        stepping.set_clock_offset(START + (50_000 if number % 2 else -50_000))
        admitted += await take(limiter, 5)
    elapsed = time.monotonic() - start
    if elapsed < 0.4:
        assert admitted == 100  # all of them fit without any jitter
    stepping.set_clock_offset(START + 50_000)
    while (ahead := await limiter.try_acquire("k")).allowed:
        pass
    stepping.set_clock_offset(START - 50_000)
    behind = await limiter.try_acquire("k")
    assert ahead.retry_after is not None
    assert behind.retry_after is not None
    assert behind.retry_after <= ahead.retry_after + 0.1 + 0.001


@every_kind
async def test_a_stored_time_from_the_future_is_healed_by_one_period(
    kind: type[Policy], stepping: Server, backend: RedisBackend
) -> None:
    """Written by a server that was an hour ahead, as after a failover; refusals do not put it off."""
    limiter = Limiter(kind(10, 10), backend, failure="closed")
    await take(limiter, 10)
    stepping.set_clock_offset(START - HOUR)
    for second in range(1, 10, 3):
        stepping.set_clock_offset(START - HOUR + second * SECOND)
        await limiter.try_acquire("k", 10)
    stepping.set_clock_offset(START - HOUR + 21 * SECOND)
    assert (await limiter.try_acquire("k", 10)).allowed


async def test_clocks_of_clients_decide_nothing(
    server: Server, backend_of: BackendOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two limiters, one in a process whose wall clock is ten seconds behind: four a second in all."""
    here, there = (Limiter("4/m log", backend_of(server.url()), failure="closed") for _ in range(2))
    true_time, true_time_ns = time.time, time.time_ns
    admitted = 0
    for limiter, late_s, tries in ((here, 0, 4), (there, 10, 1), (here, -10, 5), (there, 3600, 5)):
        monkeypatch.setattr(time, "time", lambda late_s=late_s: true_time() - late_s)
        monkeypatch.setattr(time, "time_ns", lambda late_s=late_s: true_time_ns() - late_s * 10**9)
        decisions = await asyncio.wait_for(asyncio.gather(*(limiter.try_acquire("k") for _ in range(tries))), PATIENCE)
        admitted += sum(map(bool, decisions))
    assert admitted == 4
