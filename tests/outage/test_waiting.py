"""Those who wait for their turn, in an outage: nobody asks in a circle, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiolimit import CircuitBreaker, Limiter, RateLimitExceeded

from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from .faults import DEADLINE, SLACK, disabled, recovered

pytestmark = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)


def breaker() -> CircuitBreaker:
    """One that probes ten times a second."""
    return CircuitBreaker(open_for=0.1, max_open_for=0.1)


async def test_open_lets_a_thousand_waiters_go(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Soon, marked, and with few questions sent in vain."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker(), listeners=[])
    limiter = Limiter("1/s", backend)
    await recovered(limiter)
    wire.stall()
    start = time.monotonic()
    decisions = await asyncio.gather(*(limiter.acquire(f"k{number % 50}", timeout=5) for number in range(1_000)))
    assert {decision.source for decision in decisions} == {"fail_open"}
    assert time.monotonic() - start < 5 * DEADLINE + SLACK
    assert backend.stats.failures <= 20
    wire.resume()
    await recovered(limiter)


async def test_closed_sends_a_thousand_waiters_away(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Soon, and not at the end of their patience."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker(), listeners=[])
    limiter = Limiter("1/s", backend, failure="closed")
    await recovered(limiter)
    wire.stall()
    start = time.monotonic()
    found = await asyncio.gather(
        *(limiter.acquire(f"k{number % 50}", timeout=60) for number in range(1_000)), return_exceptions=True
    )
    assert {type(one) for one in found} == {RateLimitExceeded}
    assert time.monotonic() - start < 5 * DEADLINE + SLACK
    wire.resume()
    await recovered(limiter)


async def test_local_does_not_ask_in_a_circle(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Three hundred keys with nothing left: each waiter asks when its time has come, and not before."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker(), listeners=[])
    limiter = Limiter("1/s", backend, failure="local")
    await recovered(limiter)
    backend.breaker.force_open()
    await limiter.try_acquire_many([f"k{number}" for number in range(300)])
    before, busy = backend.stats.fallback, time.process_time()
    found = await asyncio.gather(
        *(limiter.acquire(f"k{number}", timeout=2) for number in range(300)), return_exceptions=True
    )
    assert backend.stats.fallback - before <= 300 * 3
    assert {getattr(one, "source", type(one)) for one in found} == {"fallback"}
    assert time.process_time() - busy < 1.0


async def test_a_cost_beyond_the_share_waits_for_the_server(wire: FaultProxy, backend_of: BackendOf) -> None:
    """It asks once a second, and goes when the server is back."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker(), listeners=[])
    limiter = Limiter("100/s", backend, failure="local", share=0.25)
    await recovered(limiter)
    backend.breaker.force_open()
    before = backend.stats.fallback
    waiting = asyncio.ensure_future(limiter.acquire("k", 50))
    await asyncio.sleep(1.2)
    assert backend.stats.fallback - before == 2
    backend.breaker.reset()
    assert (await waiting).source == "redis"


@pytest.mark.parametrize("patience", [0, 0.05])
async def test_a_timeout_holds_against_a_server_that_does_not_answer(
    patience: float, wire: FaultProxy, backend_of: BackendOf
) -> None:
    """Whether it is shorter than the deadline or none at all."""
    backend = backend_of(wire.url(), deadline=0.2, breaker=disabled(), listeners=[])
    limiter = Limiter("100/s", backend, failure="closed")
    await recovered(limiter)
    wire.stall()
    start = time.monotonic()
    with pytest.raises(RateLimitExceeded):
        await limiter.acquire("k", timeout=patience)
    assert time.monotonic() - start < (patience or 0.2) + 0.15
    wire.resume()
    await recovered(limiter)


async def test_an_outage_during_the_wait_is_decided_by_policy(wire: FaultProxy, backend_of: BackendOf) -> None:
    """The server said to come back; when the waiter does, it is gone."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=breaker(), listeners=[])
    limiter = Limiter("5/s burst 1", backend)
    await recovered(limiter)
    assert await limiter.try_acquire("k")
    waiting = asyncio.ensure_future(limiter.acquire("k"))
    await asyncio.sleep(0.05)
    wire.stall()
    assert (await waiting).source == "fail_open"
    wire.resume()
    await recovered(limiter)


async def test_a_thousand_waiters_do_not_storm_a_server_that_is_back(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Only the head of each line asks."""
    backend = backend_of(wire.url(), deadline=2.0, breaker=breaker(), listeners=[])
    limiter = Limiter("20/s burst 1", backend, failure="local", share=0.1)
    await recovered(limiter)
    backend.breaker.force_open()
    waiting = [asyncio.ensure_future(limiter.acquire(f"k{number % 5}", timeout=60)) for number in range(1_000)]
    await asyncio.sleep(0.3)
    back, decisions = time.monotonic(), backend.stats.decisions
    before = sum(one.done() for one in waiting)
    backend.breaker.reset()
    await asyncio.sleep(1.0)
    went = sum(one.done() for one in waiting) - before
    assert 5 <= went <= 5 * (20 * (time.monotonic() - back) + 2)
    assert backend.stats.decisions - decisions <= 3 * went + 20
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
