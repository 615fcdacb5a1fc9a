"""What is this process's own doing is no outage: a small pool, a long queue, an event loop that was held up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis

from aiolimit import CircuitBreaker, Limiter, RedisBackend

from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .faults import disabled, recovered

pytestmark = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)


@pytest.mark.parametrize("pool_class", [ConnectionPool, BlockingConnectionPool])
@pytest.mark.parametrize("size", [1, 2])
async def test_ten_thousand_callers_of_a_small_pool(
    size: int, pool_class: type[ConnectionPool], wire: FaultProxy, clean_loop: None
) -> None:
    """All are decided by the server, over no more connections than there may be, and the breaker hears nothing."""
    pool = pool_class.from_url(wire.url(), max_connections=size)
    async with RedisBackend(pool, deadline=60, breaker=CircuitBreaker(failures=1), listeners=[]) as backend:
        limiter = Limiter("5000/h", backend)
        most = 0

        async def caller() -> str:
            nonlocal most
            decision = await limiter.try_acquire("k")
            most = max(most, wire.open)
            return f"{decision.source} {decision.allowed}"

        found = Counter(await asyncio.gather(*(caller() for _ in range(10_000))))
        assert found == {"redis True": 5_000, "redis False": 5_000}
        assert 1 <= most <= size
        assert (backend.stats.failures, backend.breaker.state) == (0, "closed")
    await pool.disconnect()


async def test_a_pool_that_the_application_uses_up(server: Server, clean_loop: None) -> None:
    """The policy decides at the deadline, and the breaker hears nothing; then a connection comes free."""
    pool = ConnectionPool.from_url(server.url(), max_connections=2)
    taken = [await pool.get_connection() for _ in range(2)]  # type: ignore[no-untyped-call]  # it is not, in redis-py
    breaker = CircuitBreaker(failures=1)
    async with RedisBackend(Redis(connection_pool=pool), deadline=0.1, breaker=breaker, listeners=[]) as backend:
        limiter = Limiter("100/h", backend)
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(200)))
        assert {decision.source for decision in decisions} == {"fail_open"}
        assert (backend.stats.failures, breaker.state) == (0, "closed")
        await pool.release(taken.pop())
        await recovered(limiter)
        await pool.release(taken.pop())
    await pool.disconnect()


@pytest.mark.parametrize("seconds", [0.09, 0.103, 0.11, 0.118, 0.15, 0.3])
async def test_a_loop_that_was_held_up_is_no_outage(seconds: float, server: Server, backend_of: BackendOf) -> None:
    """For about the deadline of 100 ms or longer, with the question on its way: the answer that arrived counts."""
    backend = backend_of(server.url(), deadline=0.1, listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    sources = []
    for number in range(7):
        calls = backend.stats.calls
        asking = [asyncio.create_task(limiter.try_acquire(f"k{number}")) for _ in range(5)]
        while backend.stats.calls == calls:  # noqa: ASYNC110  (a few turns)
            await asyncio.sleep(0)
        time.sleep(seconds)  # noqa: ASYNC251  (that is the point)
        sources += [(await one).source for one in asking]
    assert set(sources) == {"redis"}
    assert (backend.stats.failures, backend.stats.timeouts, backend.breaker.state) == (0, 0, "closed")


@pytest.mark.parametrize("seconds", [0.103, 0.11, 0.15, 0.3])
async def test_held_up_while_it_connects(seconds: float, server: Server, backend_of: BackendOf) -> None:
    """However often: the breaker stays closed."""
    backend = backend_of(server.url(), deadline=0.1, breaker=CircuitBreaker(failures=3), listeners=[])
    limiter = Limiter("100/h", backend)
    for _ in range(6):
        asking = asyncio.create_task(limiter.try_acquire("k"))
        for _ in range(4):
            await asyncio.sleep(0)
        time.sleep(seconds)  # noqa: ASYNC251  (that is the point)
        await asking
        await backend.aclose()
        assert backend.breaker.state == "closed"
    await recovered(limiter)


async def test_held_up_in_every_turn(server: Server, backend_of: BackendOf) -> None:
    """A loop that is never on time still is no outage."""
    backend = backend_of(server.url(), deadline=0.1, breaker=CircuitBreaker(failures=3), listeners=[])
    limiter = Limiter("100/h", backend)
    loop = asyncio.get_running_loop()
    ends = False

    def hold_up() -> None:
        time.sleep(0.12)
        if not ends:
            loop.call_soon(hold_up)

    await recovered(limiter)
    loop.call_soon(hold_up)
    for _ in range(6):
        await limiter.try_acquire("k")
    ends = True
    assert backend.breaker.state == "closed"


async def test_a_loop_held_up_does_not_hide_a_server_that_is_gone(wire: FaultProxy, backend_of: BackendOf) -> None:
    """What has not arrived by then is late all the same, and the callers go on."""
    backend = backend_of(wire.url(), deadline=0.1, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    wire.stall()
    for _ in range(3):
        asking = asyncio.create_task(limiter.try_acquire("k"))
        for _ in range(4):
            await asyncio.sleep(0)
        time.sleep(0.15)  # noqa: ASYNC251  (that is the point)
        start = time.monotonic()
        assert (await asking).source == "fail_open"
        assert time.monotonic() - start < 0.5
    wire.resume()
