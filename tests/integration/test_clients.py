"""A client or pool that the application already has: whatever its settings, the answers are the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import redis.asyncio
from fakeredis import FakeAsyncRedis

from aiolimit import Limiter, MemoryBackend, RedisBackend, SlidingLog
from aiolimit.backends import Backend
from aiolimit.policies import Policy

from ..conformance.stores import HOUR, PATIENCE, policies
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .common import recovered, used

BackendOn = Callable[..., RedisBackend]

SETTINGS: list[dict[str, Any]] = [
    {},  # ten retries, and the third protocol
    {"decode_responses": True},
    {"decode_responses": True, "protocol": 2},
    {"decode_responses": True, "protocol": 3},
    {"encoding": "latin-1"},
    {"encoding": "utf-16"},
    {"protocol": 2},
    {"protocol": 3},
    {"socket_timeout": 5},
    {"health_check_interval": 1},
    {"single_connection_client": True},
    {"max_connections": 1},
    {"db": 3, "client_name": "mine"},
]


@pytest.fixture
async def closing(clean_loop: None) -> AsyncIterator[list[Any]]:
    """Closes what it is given, the last first."""
    things: list[Any] = []
    yield things
    for thing in reversed(things):
        await thing.aclose()


@pytest.fixture
def backend_on(closing: list[Any]) -> BackendOn:
    """Makes backends on clients, and closes both."""

    def make(client: Any, **options: Any) -> RedisBackend:
        closing.append(client)
        backend = RedisBackend(client=client, **{"deadline": PATIENCE, **options})
        closing.append(backend)
        return backend

    return make


async def answers(backend: Backend) -> list[tuple[object, ...]]:
    """What all policies say to all verbs, but for the times."""
    seen: list[tuple[object, ...]] = []
    for policy in [*policies(10, 10 * HOUR), SlidingLog(500, 10 * HOUR)]:
        limiter = Limiter(policy, backend, failure="closed")
        cost = policy.limit // 3
        decisions = [
            await limiter.peek("k"),
            *[await limiter.try_acquire("k", cost) for _ in range(4)],
            await limiter.acquire_up_to("k", 7),
            await limiter.charge("k", 4),
            await limiter.refund("k", cost),
            await limiter.try_acquire(b"\xff\x00", 1),
            await limiter.acquire("é", 1),
            *await limiter.try_acquire_many(["k", ("l", cost), "é", ("l", cost), b"\xff\x00"]),
            await limiter.reset("k"),
            await limiter.peek("k", 0),
        ]
        seen += [(one.allowed, one.key, one.cost, one.granted, one.limit, one.remaining) for one in decisions]
    return seen


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_settings_change_no_answer(server: Server, backend_on: BackendOn, settings: dict[str, Any]) -> None:
    """Every verb of every policy says what it says in memory; and the client still works for its owner."""
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, **settings)
    backend = backend_on(client)
    expected = await answers(MemoryBackend())
    assert await answers(backend) == expected
    encoding = settings.get("encoding", "utf-8")
    await cast("Any", client).execute_command("SET", b"mine", "é", b"PX", b"60000")
    value = await client.get(b"mine")
    assert value == ("é" if settings.get("decode_responses") else "é".encode(encoding))


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_connection_that_died_costs_no_decision(protocol: int, server: Server, backend_on: BackendOn) -> None:
    """In either protocol: the third one's "auto" maintenance notifications hide it from the client itself."""
    limiter = Limiter("1000/h", backend_on(redis.asyncio.Redis(port=server.port, protocol=protocol)), failure="closed")
    for _ in range(20):
        assert (await limiter.try_acquire("k")).source == "redis"
        server.admin.client_kill_filter(_type="normal", skipme=True)


async def test_a_socket_timeout_does_not_shorten_the_deadline(wire: FaultProxy, backend_on: BackendOn) -> None:
    """The client's own reads would have given up."""
    wire.latency = 0.3
    client = redis.asyncio.Redis(port=wire.port, protocol=2, socket_timeout=0.15, socket_connect_timeout=5)
    wire.latency = 0.0
    limiter = Limiter("10/h", backend_on(client), failure="closed")
    await limiter.try_acquire("k")
    wire.latency = 0.5
    assert (await limiter.try_acquire("k")).source == "redis"


async def test_the_client_s_retries_send_nothing_twice(server: Server, wire: FaultProxy, backend_on: BackendOn) -> None:
    """A client retries ten times unless told otherwise; a decision is asked for once."""
    client = redis.asyncio.Redis(port=wire.port, socket_timeout=0.05)
    limiter = Limiter("10/h", backend_on(client, deadline=0.2), failure="closed")
    await recovered(limiter)
    server.reset_stats()
    await asyncio.to_thread(wire.stall)
    assert (await limiter.try_acquire("k")).source == "fail_closed"
    await asyncio.to_thread(wire.resume)
    await recovered(limiter)
    assert await used(limiter, ["k"]) in ([0], [1])


def pool_of(kind: str, url: str, maximum: int) -> Any:
    """A pool of a kind with so many connections."""
    if kind == "blocking":
        return redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=maximum, timeout=PATIENCE)
    return redis.asyncio.ConnectionPool.from_url(url, max_connections=maximum)


@pytest.mark.parametrize("kind", ["blocking", "plain"])
@pytest.mark.parametrize("maximum", [1, 2, 3, 10])
async def test_its_maximum_is_kept_and_the_excess_waits(
    kind: str, maximum: int, server: Server, backend_on: BackendOn
) -> None:
    """Two thousand callers on one connection: all decided, none refused for it, and none more opened."""
    backend = backend_on(pool_of(kind, server.url(), maximum))
    limiter = Limiter("1000000/h", backend, failure="closed")
    server.admin.config_resetstat()
    for callers in (50, 2000):
        decisions = await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(callers)))
        assert {decision.source for decision in decisions} == {"redis"}
    assert server.admin.info("stats")["total_connections_received"] <= maximum
    assert backend.stats.failures == 0


@pytest.mark.parametrize("maximum", [1, 2, 4])
async def test_the_application_is_not_starved_of_its_own_pool(
    maximum: int, wire: FaultProxy, backend_on: BackendOn, closing: list[Any]
) -> None:
    """Steady traffic on a slow wire, with questions waiting all the time, and the pool's owner gets its connection."""
    pool = pool_of("blocking", wire.url(), maximum)
    client = redis.asyncio.Redis(connection_pool=pool)
    limiter = Limiter("1000000/h", backend_on(pool), failure="closed")
    await limiter.try_acquire("k")
    wire.latency = 0.02

    async def ask() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(limiter.try_acquire("k"))
                await asyncio.sleep(0.002)

    asking = asyncio.create_task(ask())
    try:
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                await client.set("mine", 1, px=60_000)
    finally:
        asking.cancel()
        await asyncio.wait([asking])


async def test_a_pool_that_its_owner_has_emptied_is_no_outage(server: Server, backend_on: BackendOn) -> None:
    """Callers hear of it at their deadline, by the failure policy; the breaker hears nothing."""
    pool = pool_of("plain", server.url(), 1)
    backend = backend_on(pool, deadline=0.05)
    limiter = Limiter("10/h", backend, failure="closed")
    owner = redis.asyncio.Redis(connection_pool=pool, single_connection_client=True)
    await owner.ping()  # and keeps its connection
    for _ in range(7):
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(3)))
        assert {decision.source for decision in decisions} == {"fail_closed"}
    assert backend.stats.failures == 0
    assert backend.breaker.state == "closed"
    await owner.aclose()
    await recovered(limiter)
    assert await used(limiter, ["k"]) == [0]


async def test_closing_leaves_the_client_to_its_owner(server: Server, backend_on: BackendOn) -> None:
    """And asking again takes the same pool again, so that its maximum holds."""
    client = redis.asyncio.Redis(port=server.port, max_connections=2)
    backend = backend_on(client)
    limiter = Limiter("10/h", backend, failure="closed")
    server.admin.config_resetstat()
    for _ in range(3):
        assert (await limiter.try_acquire("k")).source == "redis"
        await client.set("mine", 1, px=60_000)
        assert server.admin.info("clients")["connected_clients"] <= 1 + 2
        await backend.aclose()
        assert await client.get("mine") == b"1"
        assert server.admin.info("clients")["connected_clients"] <= 1 + 2


@pytest.mark.parametrize("settings", [{}, {"decode_responses": True}], ids=str)
async def test_fakeredis_decides_like_a_server(settings: dict[str, Any], backend_on: BackendOn) -> None:
    """Applications are tested with it."""
    client = FakeAsyncRedis(**settings)
    await client.ping()  # it reads files at first use, which is its own affair
    assert await answers(backend_on(client)) == await answers(MemoryBackend())


async def test_fakeredis_admits_exactly_the_limit(policy: Policy, backend_on: BackendOn) -> None:
    """Of many callers, and in a batch."""
    client = FakeAsyncRedis()
    await client.ping()
    limiter = Limiter(policy, backend_on(client), failure="closed")
    decisions = await asyncio.gather(*(limiter.try_acquire("a") for _ in range(50)))
    assert sum(map(bool, decisions)) == policy.limit
    assert sum(map(bool, await limiter.try_acquire_many(["b"] * 50))) == policy.limit
