"""Callers that are cancelled at any moment, on a slow wire: nobody gets another's answer, and no connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from aiolimit import Decision, Limiter

from ..integration.common import until, used
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server

ROUNDS, TOGETHER = 10, 50
LATENCY = 0.15
LIMIT = 1000


async def by_task(call: Callable[[], Awaitable[object]], after: float) -> None:
    """Cancel the caller's task."""
    task = asyncio.ensure_future(call())
    await asyncio.wait([task], timeout=after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def by_timeout(call: Callable[[], Awaitable[object]], after: float) -> None:
    """The caller's own timeout."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(after):
            await call()


async def by_group(call: Callable[[], Awaitable[object]], after: float) -> None:
    """Another task of the caller's group fails."""

    async def fail() -> None:
        await asyncio.sleep(after)
        raise LookupError

    async def ask() -> None:
        await call()

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(ask())


@pytest.mark.parametrize("connections", [1, 4])
async def test_five_hundred_random_cancellations(connections: int, wire: FaultProxy, backend_of: BackendOf) -> None:
    """Every answer belongs to its key, each cancelled call is charged once or not at all, and every connection stays.

    The cost tells whose answer it is: each key is fresh, and is asked for a cost of its own.
    """
    backend = backend_of(wire.url(), deadline=60, max_connections=connections)
    limiter = Limiter(f"{LIMIT}/30d", backend, failure="closed")
    rng = random.Random(connections)
    await limiter.try_acquire("spent", LIMIT)

    async def one_after_another(caller: int) -> None:
        for number in range(ROUNDS):
            wire.latency = rng.random() * LATENCY
            cost = 1 + (caller * ROUNDS + number) % 900
            doomed, key = f"doomed {caller} {number}", f"fresh {caller} {number}"
            call = rng.choice(
                [
                    lambda doomed=doomed: limiter.try_acquire(doomed),
                    lambda doomed=doomed: limiter.try_acquire_many([doomed] * 3),
                ]
            )
            await rng.choice([by_task, by_timeout, by_group])(call, rng.random() * LATENCY)
            if number % 2:
                assert not await limiter.try_acquire("spent")
            decision = await limiter.try_acquire(key, cost)
            assert (decision.source, decision.remaining) == ("redis", LIMIT - cost)

    await asyncio.gather(*(one_after_another(caller) for caller in range(TOGETHER)))
    wire.latency = 0.0
    assert wire.accepted <= connections
    assert backend.stats.failures == 0
    keys = [f"doomed {caller} {number}" for caller in range(TOGETHER) for number in range(ROUNDS)]
    assert set(await used(limiter, keys)) <= {0, 1, 3}
    together = await asyncio.gather(*(limiter.peek("spent") for _ in range(100)))
    assert {decision.remaining for decision in together} == {0}


async def test_a_call_that_was_not_sent_is_not_charged(server: Server, wire: FaultProxy, backend_of: BackendOf) -> None:
    """The wire is stalled by a call before it; by the time it goes on, nobody awaits the others."""
    backend = backend_of(wire.url(), max_connections=1)
    limiter = Limiter(f"{LIMIT}/30d", backend, failure="closed")
    await limiter.try_acquire("warm")
    await asyncio.to_thread(wire.stall)
    sent = asyncio.create_task(limiter.try_acquire("sent"))
    calls = backend.stats.calls
    await until(lambda: backend.stats.calls > calls)
    others: list[asyncio.Task[Decision] | asyncio.Task[list[Decision]]] = [
        *(asyncio.create_task(limiter.try_acquire("k")) for _ in range(10)),
        asyncio.create_task(limiter.try_acquire_many(["k", "k"])),
    ]
    await asyncio.sleep(0.01)
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    assert all(task.cancelled() for task in others)
    await asyncio.to_thread(wire.resume)
    assert (await sent).remaining == LIMIT - 1
    assert (await limiter.peek("k")).remaining == LIMIT
    assert server.admin.dbsize() == 2
    assert backend.stats.calls == calls + 2


async def test_a_call_that_was_sent_is_charged_once(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Cancelling cannot take it back, and nothing is sent again for it."""
    wire.latency = 0.1
    backend = backend_of(wire.url(), max_connections=1)
    limiter = Limiter(f"{LIMIT}/30d", backend, failure="closed")
    await limiter.try_acquire("warm")
    calls = backend.stats.calls
    task = asyncio.create_task(limiter.try_acquire("k"))
    await until(lambda: backend.stats.calls > calls)
    task.cancel()
    await asyncio.wait([task])
    assert (await limiter.peek("k")).remaining == LIMIT - 1
    assert wire.accepted == 1
