"""A server that does not answer: every caller ends in time, nothing is sent twice, and it recovers by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from aiolimit import BackendError, Limiter, RedisBackend
from aiolimit.policies import Policy

from ..conformance.stores import PATIENCE
from ..conftest import OwnServer
from ..integration.common import no_breaker, recovered, used
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import HOST, Server, free_port

DEADLINE = 0.1
SLACK = 1.0
"""Seconds that a busy machine may be late. Without a deadline each of these stalls would last ten."""
STALL = 10.0

Failure = Literal["open", "closed"]


@asynccontextmanager
async def stalled(how: str, server: Server, wire: FaultProxy) -> AsyncIterator[None]:
    """The server or the wire is dead in one of the ways that there are."""
    if how == "frozen":
        server.pause()
        yield
        server.resume()
    elif how == "stalled wire":
        await asyncio.to_thread(wire.stall)
        yield
        await asyncio.to_thread(wire.resume)
    elif how == "half open":
        await asyncio.to_thread(wire.half_open)
        yield
    else:
        await asyncio.to_thread(wire.cut)
        await asyncio.to_thread(wire.silent, True)
        yield
        await asyncio.to_thread(wire.silent, False)


@pytest.mark.parametrize("failure", ["open", "closed"])
@pytest.mark.parametrize("how", ["frozen", "stalled wire", "half open", "silent"])
async def test_every_caller_ends_within_its_deadline(
    how: str, failure: Failure, server: Server, wire: FaultProxy, backend_of: BackendOf
) -> None:
    """Alone, at once and by hand; each call is executed once or never, and afterwards the server decides again."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=no_breaker())
    limiter = Limiter("100/h", backend, failure=failure)
    await recovered(limiter)
    keys = [f"k{number}" for number in range(30)]
    took: list[float] = []
    sources: set[str] = set()

    async def ask(key: str) -> None:
        start = time.monotonic()
        decision = await limiter.try_acquire(key)
        took.append(time.monotonic() - start)
        sources.add(decision.source)
        assert decision.source == "redis" or decision.allowed == (failure == "open")

    async with stalled(how, server, wire):
        await ask(keys[0])
        await asyncio.gather(*map(ask, keys[1:20]))
        start = time.monotonic()
        decisions = await limiter.try_acquire_many(keys[20:])
        took.append(time.monotonic() - start)
        sources |= {decision.source for decision in decisions}
    if how != "half open":  # where the next connection works
        assert sources == {f"fail_{failure}"}
    assert max(took) < DEADLINE + SLACK
    await recovered(limiter)
    assert set(await used(limiter, keys)) <= {0, 1}


async def test_a_blocked_server_executes_each_call_once(policy: Policy, server: Server, backend_of: BackendOf) -> None:
    """It was written before it was late, so it runs when the server wakes up; nobody sends it again."""
    backend = backend_of(server.url(), deadline=DEADLINE, breaker=no_breaker())
    limiter = Limiter(policy, backend, failure="open")
    await recovered(limiter)
    sleeping = asyncio.create_task(asyncio.to_thread(server.admin.execute_command, "DEBUG", "SLEEP", "0.6"))
    async with asyncio.timeout(PATIENCE):
        while (await limiter.peek("again")).source == "redis":  # noqa: ASYNC110  (until it sleeps)
            await asyncio.sleep(0.005)
    keys = [f"k{number}" for number in range(10)]
    decisions = await asyncio.gather(*(limiter.try_acquire(key) for key in keys))
    late = [decision.key for decision in decisions if decision.source == "fail_open"]
    await sleeping
    await recovered(limiter)
    assert late
    assert set(await used(limiter, keys)) <= {0, 1}


@pytest.mark.parametrize("failure", ["open", "closed"])
async def test_a_refused_port_is_known_at_once(failure: Failure, backend_of: BackendOf) -> None:
    """Without waiting for the deadline, however long."""
    limiter = Limiter("10/h", backend_of(f"redis://{HOST}:{free_port()}", deadline=60), failure=failure)
    async with asyncio.timeout(5):
        for _ in range(3):
            assert (await limiter.try_acquire("k")).source == f"fail_{failure}"
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(1000)))
    assert {decision.source for decision in decisions} == {f"fail_{failure}"}


async def test_every_verb_has_an_answer_without_the_server(backend_of: BackendOf) -> None:
    """None raises, and none claims to come from the server."""
    limiter = Limiter("10/h", backend_of(f"redis://{HOST}:{free_port()}", deadline=60), failure="open")
    answers = [
        await limiter.try_acquire("k"),
        await limiter.acquire("k"),
        await limiter.peek("k"),
        await limiter.acquire_up_to("k", 100),
        await limiter.refund("k"),
        await limiter.charge("k"),
        await limiter.reset("k"),
        *await limiter.try_acquire_many(["k", ("l", 3)]),
    ]
    assert {answer.source for answer in answers} == {"fail_open"}
    assert [answer.granted for answer in answers] == [1, 1, 0, 10, 0, 0, 0, 1, 3]


async def test_a_caller_that_comes_later_has_its_own_time(wire: FaultProxy, backend_of: BackendOf) -> None:
    """The deadline of the one before it is not its own: it still gets its answer from the same connection."""
    backend = backend_of(wire.url(), deadline=1.0, breaker=no_breaker(), max_connections=1)
    limiter = Limiter("10/h", backend, failure="closed")
    await recovered(limiter)
    await asyncio.to_thread(wire.stall)
    first = asyncio.create_task(limiter.try_acquire("first", deadline=0.1))
    assert (await first).source == "fail_closed"
    second = asyncio.create_task(limiter.try_acquire("second"))
    await asyncio.sleep(0)
    await asyncio.to_thread(wire.resume)
    assert (await second).source == "redis"


async def test_it_is_counted(own_server: OwnServer) -> None:
    """Timeouts one by one, and no mistake hides among them."""
    server = own_server()
    async with RedisBackend.from_url(server.url(), deadline=DEADLINE, breaker=no_breaker()) as backend:
        limiter = Limiter("10/h", backend, failure="open")
        await recovered(limiter)
        server.pause()
        decisions: list[Any] = await asyncio.gather(
            *(limiter.try_acquire(f"k{number}") for number in range(7)), return_exceptions=True
        )
        server.resume()
        assert not any(isinstance(decision, BackendError) for decision in decisions)
        assert backend.stats.timeouts >= 7
        assert backend.stats.fail_open >= 7
        await recovered(limiter)
