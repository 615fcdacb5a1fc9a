"""A server that answers, and refuses: loading, busy, demoted, without its primary, full."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiolimit import BackendUnavailable, CircuitBreaker, Limiter
from aiolimit.events import Event, Exchanged

from ..adversity.test_server_states import state
from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .faults import SLACK, SOURCES, Failure, Watch, charged, disabled, lead_to, recovered, state_of

STATES = {
    "OOM": "OutOfMemory|OOM",
    "READONLY": "ReadOnly|READONLY",
    "MASTERDOWN": "MasterDown|MASTERDOWN",
    "BUSY": "BUSY",
    "LOADING": "BusyLoading|LOADING",
}


@pytest.mark.allows_immortal_keys
@pytest.mark.parametrize("failure", ["open", "closed", "local"])
@pytest.mark.parametrize("name", STATES)
async def test_counts_opens_and_ends(name: str, failure: Failure, server: Server, backend_of: BackendOf) -> None:
    """Each refusal is a failure, five open the breaker, everybody goes on by policy; and when it is over the next probe
    finds out.
    """
    told: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Exchanged) and event.error is not None:
            assert isinstance(event.error, BackendUnavailable)
            told.append(str(event.error))

    breaker = CircuitBreaker(open_for=0.2, max_open_for=0.2, jitter=lambda: 0.0)
    backend = backend_of(server.url(), deadline=5, breaker=breaker, listeners=[listen])
    limiter = Limiter("1000/h", backend, failure=failure)
    await recovered(limiter)
    async with state(name, server):
        watch = Watch()
        for number in range(5):
            await watch.time(limiter.try_acquire(f"alone {number}"))
        assert state_of(backend) == "open"
        await asyncio.gather(*(watch.time(limiter.try_acquire(f"at once {number}")) for number in range(200)))
        await watch.time(limiter.try_acquire_many([f"batch {number}" for number in range(500)]))
        assert watch.sources == {SOURCES[failure]}
        assert max(watch.took) < SLACK
        assert backend.stats.failures >= 5
        assert any(word in text for text in told for word in STATES[name].split("|"))
    assert await recovered(limiter) < 0.2 + SLACK
    assert breaker.state == "closed"
    if failure != "local":
        assert set(await charged(limiter, [str(decision.key) for decision in watch.decisions])) == {0}


@pytest.mark.parametrize("verb", ["try_acquire", "charge", "acquire_up_to"])
async def test_a_demoted_server_s_connection_is_dropped(
    verb: str, server: Server, wire: FaultProxy, backend_of: BackendOf
) -> None:
    """At the first refusal; each attempt is a new connection, and the first after the promotion decides."""
    backend = backend_of(wire.url(), deadline=5, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend, failure="closed")
    await recovered(limiter)
    server.admin.replicaof("127.0.0.1", 1)
    opened = backend.stats.connections
    for _ in range(5):
        assert (await getattr(limiter, verb)("k", 1)).source == "fail_closed"
    assert backend.stats.connections - opened >= 4
    server.admin.replicaof("NO", "ONE")
    assert (await getattr(limiter, verb)("k", 1)).source == "redis"
    assert await charged(limiter, ["k"]) == [1]


@pytest.mark.parametrize("server_kind", ["redis"], indirect=True)
async def test_an_address_that_leads_to_the_new_primary(
    server: Server, own_server: OwnServer, wire: FaultProxy, backend_of: BackendOf
) -> None:
    """The old connections stay up, to a server that is a replica now: nobody has to restart anything."""
    breaker = CircuitBreaker(open_for=0.1, max_open_for=0.1)
    backend = backend_of(wire.url(), deadline=5, breaker=breaker, listeners=[])
    limiter = Limiter("100/h", backend, failure="closed")
    await recovered(limiter)
    primary = own_server()
    server.admin.replicaof("127.0.0.1", 1)
    wire._upstream_port = primary.port  # for connections from now on
    start = time.monotonic()
    sources = [(await limiter.try_acquire("k")).source for _ in range(10)]
    assert sources[0] == "fail_closed"
    assert sources[1:] == ["redis"] * 9
    assert time.monotonic() - start < SLACK
    assert primary.admin.dbsize() == 1
    lead_to(wire, server.port)
