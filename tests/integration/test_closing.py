"""Closing a backend, and asking it again."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import pytest

from aiolimit import Limiter, RateLimitExceeded
from aiolimit.policies import Policy

from ..conftest import OwnServer
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .common import until
from .conftest import BackendOf


async def test_callers_who_wait_hear_of_it(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Those whose call is on the wire, and those whose is not sent yet: at once, by the failure policy."""
    backend = backend_of(wire.url(), max_connections=1)
    limiter = Limiter("100/h", backend, failure="closed")
    await limiter.try_acquire("k")
    await asyncio.to_thread(wire.stall)
    sent = asyncio.gather(*(limiter.try_acquire("k") for _ in range(3)))
    calls = backend.stats.calls
    await until(lambda: backend.stats.calls > calls)
    unsent = asyncio.gather(limiter.try_acquire("k"), limiter.try_acquire_many(["a", "b"]), limiter.try_acquire("k"))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await backend.aclose()
        decisions = await sent
        one, many, other = await unsent
    assert {decision.source for decision in (*decisions, one, *many, other)} == {"fail_closed"}
    await asyncio.to_thread(wire.resume)
    assert (await limiter.try_acquire("l")).source == "redis"


async def test_a_caller_who_waits_for_its_turn_goes_on(server: Server, backend_of: BackendOf) -> None:
    """It asks anew when its time has come."""
    backend = backend_of(server.url())
    limiter = Limiter("1/200ms", backend, failure="closed")
    await limiter.acquire("k")
    waiting = asyncio.create_task(asyncio.wait_for(limiter.acquire("k").__aenter__(), 10))
    await asyncio.sleep(0.05)
    await backend.aclose()
    assert (await waiting).source == "redis"


async def test_twice_is_as_once(server: Server, backend_of: BackendOf) -> None:
    """Also before anything was asked, and at the same time."""
    backend = backend_of(server.url())
    await backend.aclose()
    await Limiter("10/h", backend).try_acquire("k")
    await asyncio.gather(backend.aclose(), backend.aclose())
    await backend.aclose()


async def test_asking_after_it_opens_new_connections(policy: Policy, server: Server, backend_of: BackendOf) -> None:
    """The counts are where they were."""
    backend = backend_of(server.url())
    limiter = Limiter(policy, backend, failure="closed")
    for used in range(1, 4):
        assert (await limiter.try_acquire("k")).remaining == policy.limit - used
        await backend.aclose()
        assert server.admin.info("clients")["connected_clients"] == 1


async def test_a_limiter_closes_what_it_made_and_nothing_else(server: Server, backend_of: BackendOf) -> None:
    """A backend that was given stays open for the others on it."""
    backend = backend_of(server.url())
    async with Limiter("10/h", backend) as shared, Limiter("10/h", server.url()) as own:
        assert (await own.try_acquire("k")).allowed
        assert (await shared.try_acquire("k")).allowed
    await until(lambda: server.admin.info("clients")["connected_clients"] <= 2, every=0.01)
    received = server.admin.info("stats")["total_connections_received"]
    await Limiter("10/h", backend).try_acquire("k")
    assert server.admin.info("stats")["total_connections_received"] == received


async def test_no_caller_s_context_outlives_its_call(server: Server, backend_of: BackendOf) -> None:
    """The request that came first is let go, though the lane that it started and the timers live on."""

    class Request:
        pass

    current: contextvars.ContextVar[Request] = contextvars.ContextVar("current")
    limiter = Limiter("1000000/s", backend_of(server.url(), deadline=0.2))
    loop = asyncio.get_running_loop()

    async def serve() -> weakref.ref[Request]:
        request = Request()
        current.set(request)
        await limiter.try_acquire("k")
        return weakref.ref(request)

    request = await asyncio.create_task(serve())
    end = loop.time() + 5
    while request() is not None and loop.time() < end:  # steady traffic: there always is a deadline ahead
        await limiter.try_acquire("k")
        gc.collect()
    assert request() is None


async def test_an_acquire_with_a_timeout_ends_while_its_server_is_gone(
    own_server: OwnServer, backend_of: BackendOf
) -> None:
    """Closed: at once. Waiting for a server is not what `acquire` is for."""
    server = own_server()
    limiter = Limiter("1/h", backend_of(server.url()), failure="closed")
    await limiter.acquire("k")
    server.kill()
    with pytest.raises(RateLimitExceeded):
        await asyncio.wait_for(limiter.acquire("k", timeout=5).__aenter__(), 2)
