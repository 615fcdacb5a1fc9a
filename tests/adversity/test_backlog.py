"""More questions than may wait: back-pressure of this process, and never an outage of the server."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from aiolimit import Limiter

from ..integration.common import recovered, until
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy


@pytest.mark.parametrize("failure", ["open", "closed"])
async def test_the_excess_is_decided_at_once_by_the_failure_policy(
    failure: Literal["open", "closed"], wire: FaultProxy, backend_of: BackendOf
) -> None:
    """Counted apart; the breaker stays closed, and those who wait are decided when the wire goes on."""
    backend = backend_of(wire.url(), max_connections=1, max_backlog=20)
    limiter = Limiter("1000/h", backend, failure=failure)
    await recovered(limiter)
    await asyncio.to_thread(wire.stall)
    sent = asyncio.create_task(limiter.try_acquire("k"))
    calls = backend.stats.calls
    await until(lambda: backend.stats.calls > calls)
    waiting = [asyncio.create_task(limiter.try_acquire("k")) for _ in range(20)]
    await asyncio.sleep(0)
    excess = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(30)))
    assert {decision.source for decision in excess} == {f"fail_{failure}"}
    assert {decision.source for decision in await limiter.try_acquire_many(["k", "l"])} == {f"fail_{failure}"}
    assert backend.stats.overloads >= 31
    await asyncio.to_thread(wire.resume)
    assert {decision.source for decision in [await sent, *await asyncio.gather(*waiting)]} == {"redis"}
    assert (backend.stats.failures, backend.breaker.state) == (0, "closed")
    assert (await limiter.peek("k")).remaining == 1000 - 21
