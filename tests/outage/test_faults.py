"""Every fault: each call ends in time and by policy, marked and counted; and afterwards the server decides again."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import pytest

from aiolimit import CircuitBreaker, Limiter, RateLimitExceeded
from aiolimit.events import Event, Exchanged

from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import HOST, Server, free_port
from .faults import (
    DEADLINE,
    FAULTS,
    SLACK,
    SOURCES,
    Failure,
    Peer,
    Watch,
    charged,
    disabled,
    fault,
    recovered,
    state_of,
)

POLICIES: tuple[Failure, ...] = ("open", "closed", "local")
only_redis = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)


async def everybody(limiter: Limiter) -> Watch:
    """A lone caller three times, two hundred at once, a batch of five hundred; and how it went."""
    watch = Watch()
    for number in range(3):
        await watch.time(limiter.try_acquire(f"alone {number}"))
    await asyncio.gather(*(watch.time(limiter.try_acquire(f"at once {number}")) for number in range(200)))
    await watch.time(limiter.try_acquire_many([f"batch {number}" for number in range(500)]))
    return watch


@only_redis
@pytest.mark.parametrize("failure", POLICIES)
@pytest.mark.parametrize("name", FAULTS)
async def test_every_call_ends_in_time_and_by_policy(  # noqa: PLR0917  (fixtures)
    name: str, failure: Failure, server: Server, wire: FaultProxy, peer: Peer, backend_of: BackendOf
) -> None:
    """With no breaker to help; each decision says so and is counted, and afterwards the server decides."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend, failure=failure)
    await recovered(limiter)
    async with fault(name, server, wire, peer):
        before = getattr(backend.stats, SOURCES[failure])
        watch = await everybody(limiter)
        assert watch.sources == {SOURCES[failure]}
        assert all(one.allowed == (failure != "closed") for one in watch.decisions)
        assert getattr(backend.stats, SOURCES[failure]) - before == len(watch.decisions) == 703
        assert max(watch.took) < DEADLINE + SLACK
        assert statistics.median(watch.took[:3]) < DEADLINE + 0.1
        assert backend.stats.failures > 0
    await recovered(limiter)


@only_redis
@pytest.mark.parametrize("failure", POLICIES)
@pytest.mark.parametrize("name", ["frozen", "silent", "closes on the question"])
async def test_every_verb_ends_in_time_and_by_policy(  # noqa: PLR0917  (fixtures)
    name: str, failure: Failure, server: Server, wire: FaultProxy, peer: Peer, backend_of: BackendOf
) -> None:
    """Also waiting ones: only `closed` refuses, and then at once."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend, failure=failure)
    await recovered(limiter)

    async def waiting() -> Any:
        try:
            return await limiter.acquire("acquire")
        except RateLimitExceeded as error:
            return error.decision

    async def entering() -> Any:
        try:
            async with limiter.acquire("enter", timeout=60) as decision:
                return decision
        except RateLimitExceeded as error:
            return error.decision

    calls = (
        lambda: limiter.try_acquire("k"),
        waiting,
        entering,
        lambda: limiter.try_acquire_many(["k", ("l", 2)]),
        lambda: limiter.acquire_up_to("k", 5),
        lambda: limiter.peek("k"),
        lambda: limiter.refund("k"),
        lambda: limiter.charge("k"),
        lambda: limiter.reset("k"),
    )
    async with fault(name, server, wire, peer):
        watch = Watch()
        for call in calls:
            await watch.time(call())
        assert [one.source for one in watch.decisions] == [SOURCES[failure]] * 10
        assert all(one.allowed == (failure != "closed") for one in watch.decisions)
        assert max(watch.took) < DEADLINE + SLACK
    await recovered(limiter)


@only_redis
@pytest.mark.parametrize("name", FAULTS)
async def test_the_breaker_opens_and_closes_within_its_interval(
    name: str, server: Server, wire: FaultProxy, peer: Peer, backend_of: BackendOf
) -> None:
    """After five failures; the server decides again when the next probe is due, for everybody."""
    open_for = 0.3
    breaker = CircuitBreaker(failures=5, open_for=open_for, max_open_for=open_for, jitter=lambda: 0.0)
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker, listeners=[])
    limiter = Limiter("100000/h", backend, failure="closed")
    await recovered(limiter)
    async with fault(name, server, wire, peer):
        async with asyncio.timeout(10):
            while state_of(backend) != "open":
                await asyncio.gather(*(limiter.try_acquire("k") for _ in range(3)))
        start = time.monotonic()
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(200)))
        assert {decision.source for decision in decisions} == {"fail_closed"}
        assert time.monotonic() - start < DEADLINE
    assert await recovered(limiter) < open_for + DEADLINE + SLACK
    assert breaker.state == "closed"
    decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(200)))
    assert {decision.source for decision in decisions} == {"redis"}


@pytest.mark.parametrize("failure", POLICIES)
async def test_a_crash_under_load(failure: Failure, own_server: OwnServer, backend_of: BackendOf) -> None:
    """Kill -9 with two hundred callers: each goes on by policy, and is back within the probe interval of a restart."""
    server = own_server()
    breaker = CircuitBreaker(open_for=0.2, max_open_for=0.2)
    backend = backend_of(server.url(), deadline=DEADLINE, breaker=breaker, listeners=[])
    limiter = Limiter("1000000/h", backend, failure=failure)
    await recovered(limiter)
    watch = Watch()
    ends = False

    async def caller(key: str) -> None:
        while not ends:
            await watch.time(limiter.try_acquire(key))
            await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(caller(f"k{number}"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.start)
        await recovered(limiter)
        ends = True
    assert watch.sources == {"redis", SOURCES[failure]}
    assert max(watch.took) < DEADLINE + SLACK
    assert breaker.state == "closed"
    counted = sum(decision.source == SOURCES[failure] for decision in watch.decisions)
    assert counted <= getattr(backend.stats, SOURCES[failure])


@only_redis
async def test_a_restart_under_load(own_server: OwnServer, backend_of: BackendOf) -> None:
    """In the ordinary way, with its data: no call fails other than by policy, and nothing is charged twice."""
    server = own_server()
    breaker = CircuitBreaker(open_for=0.05, max_open_for=0.05)
    backend = backend_of(server.url(), deadline=0.5, breaker=breaker, listeners=[])
    limiter = Limiter("1000000/h", backend, failure="closed")
    await recovered(limiter)
    watch = Watch()
    restart = asyncio.create_task(asyncio.to_thread(server.restart, wipe=False))
    while not restart.done():
        await asyncio.gather(*(watch.time(limiter.try_acquire("k")) for _ in range(20)))
        await asyncio.sleep(0.005)
    await restart
    await recovered(limiter)
    assert watch.sources <= {"redis", "fail_closed"}
    assert sum(await charged(limiter, ["k"])) <= len(watch.decisions)


@pytest.mark.parametrize("failure", POLICIES)
async def test_a_closed_port(failure: Failure, backend_of: BackendOf) -> None:
    """Nobody waits for a deadline, however long."""
    backend = backend_of(f"redis://{HOST}:{free_port()}", deadline=60, breaker=disabled(), listeners=[])
    watch = await everybody(Limiter("100/h", backend, failure=failure))
    assert watch.sources == {SOURCES[failure]}
    assert max(watch.took) < SLACK
    assert getattr(backend.stats, SOURCES[failure]) == 703


@pytest.mark.parametrize("failure", POLICIES)
async def test_a_name_that_nobody_knows(failure: Failure, backend_of: BackendOf) -> None:
    """Resolving it is within the deadline, too."""
    backend = backend_of("redis://no-such-host.invalid", deadline=DEADLINE, breaker=disabled(), listeners=[])
    watch = await everybody(Limiter("100/h", backend, failure=failure))
    assert watch.sources == {SOURCES[failure]}
    assert max(watch.took) < DEADLINE + SLACK


@only_redis
async def test_rising_latency(wire: FaultProxy, backend_of: BackendOf) -> None:
    """While it is below the deadline the server decides; beyond it the policy does, each time within the deadline."""
    backend = backend_of(wire.url(), deadline=0.2, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend, failure="open")
    await recovered(limiter)
    sources = []
    for latency in (0.001, 0.01, 0.05, 0.35, 0.5):
        wire.latency = latency
        watch = Watch()
        await asyncio.gather(*(watch.time(limiter.try_acquire(f"k{number}")) for number in range(50)))
        assert max(watch.took) < 0.2 + SLACK
        sources.append(watch.sources)
    assert sources == [{"redis"}] * 3 + [{"fail_open"}] * 2


@only_redis
async def test_slow_answers_open_the_breaker_where_that_is_wanted(wire: FaultProxy, backend_of: BackendOf) -> None:
    """They come within the deadline, and still too late for the application."""
    breaker = CircuitBreaker(slow_rate=0.8, slow_after=0.05, minimum=10, open_for=60)
    backend = backend_of(wire.url(), deadline=5, breaker=breaker, listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    wire.latency = 0.06
    async with asyncio.timeout(20):
        while breaker.state == "closed":
            await asyncio.gather(*(limiter.try_acquire("k") for _ in range(5)))
    assert backend.stats.failures == 0
    assert (await limiter.try_acquire("k")).source == "fail_open"


@only_redis
@pytest.mark.parametrize(("rate", "state"), [(0.5, "closed"), (0.25, "open")])
async def test_one_call_of_three_fails(rate: float, state: str, wire: FaultProxy, backend_of: BackendOf) -> None:
    """Never five in a row: the breaker opens if the share is too large for its rate, and else stays out of it."""
    breaker = CircuitBreaker(failure_rate=rate, minimum=20, open_for=60)
    exchanges = 0

    def cut_every_third(event: Event) -> None:
        nonlocal exchanges
        exchanges += isinstance(event, Exchanged)
        if isinstance(event, Exchanged) and exchanges % 3 == 2:
            wire.cut_after(3)

    backend = backend_of(wire.url(), deadline=5, breaker=breaker, listeners=[cut_every_third])
    limiter = Limiter("1000/h", backend, failure="closed")
    sources = [(await limiter.try_acquire("k")).source for _ in range(60)]
    assert breaker.state == state
    if state == "closed":
        assert sources == ["redis", "redis", "fail_closed"] * 20
    else:
        assert sources[-30:] == ["fail_closed"] * 30
