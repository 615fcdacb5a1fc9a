"""Servers that restart and connections that are killed, idle and in flight."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from aiolimit import Limiter, SlidingLog
from aiolimit.policies import Policy

from ..conformance.stores import PATIENCE, policies
from ..conftest import OwnServer
from ..integration.common import no_breaker, recovered, used
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server

KILLS = 1000
LONG = 3650 * 86_400.0  # so that hardly a unit comes back meanwhile


@pytest.mark.parametrize("wipe", [True, False], ids=["empty", "with its data"])
async def test_a_restart_while_nobody_asks_costs_no_decision(
    wipe: bool, own_server: OwnServer, backend_of: BackendOf
) -> None:
    """The first call after it is decided, script text and all."""
    server = own_server()
    limiter = Limiter("10/h", backend_of(server.url()), failure="closed")
    assert (await limiter.try_acquire("k")).remaining == 9
    await asyncio.to_thread(server.restart, wipe=wipe)
    decision = await limiter.try_acquire("k")
    assert (decision.source, decision.remaining) == ("redis", 9 if wipe else 8)


async def test_a_crash_is_over_when_the_server_is_back(own_server: OwnServer, backend_of: BackendOf) -> None:
    """Meanwhile the failure policy decides, and nothing has to be done."""
    server = own_server()
    limiter = Limiter("10/h", backend_of(server.url(), breaker=no_breaker()), failure="open")
    await limiter.try_acquire("k")
    await asyncio.to_thread(server.kill)
    for _ in range(3):
        assert (await limiter.try_acquire("k")).source == "fail_open"
    await asyncio.to_thread(server.start)
    decision = await limiter.try_acquire("k")
    assert (decision.source, decision.remaining) == ("redis", 9)


async def test_killing_idle_connections_costs_no_decision(
    policy: Policy, server: Server, backend_of: BackendOf
) -> None:
    """Fifty callers after each of ten kills: all are decided by the server."""
    backend = backend_of(server.url())
    limiter = Limiter(policy, backend, failure="closed")
    for number in range(10):
        decisions = await asyncio.gather(*(limiter.try_acquire(f"k{number} {caller}") for caller in range(50)))
        assert {decision.source for decision in decisions} == {"redis"}
        server.admin.client_kill_filter(_type="normal", skipme=True)
    assert backend.stats.failures == 0


async def test_callers_of_a_killed_call_hear_at_once(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Not at their deadline; the next call goes over another connection."""
    limiter = Limiter("10/h", backend_of(wire.url(), deadline=60, breaker=no_breaker()), failure="closed")
    await limiter.try_acquire("k")
    await asyncio.to_thread(wire.stall)
    asked = asyncio.gather(*(limiter.try_acquire("k") for _ in range(5)))
    await asyncio.sleep(0.02)
    await asyncio.to_thread(wire.cut)
    async with asyncio.timeout(PATIENCE):
        assert {decision.source for decision in await asked} == {"fail_closed"}
        await asyncio.to_thread(wire.resume)
        await recovered(limiter)


@pytest.mark.parametrize("reply_bytes", [0, 1, 5, 40, 200])
async def test_a_reply_that_breaks_off_is_nobody_s_answer(
    reply_bytes: int, wire: FaultProxy, backend_of: BackendOf
) -> None:
    """Its callers hear of it, whichever part has come, and each key was charged at most once."""
    limiter = Limiter("10/h", backend_of(wire.url(), max_connections=1, breaker=no_breaker()), failure="closed")
    await limiter.try_acquire("warm")
    wire.cut_after(reply_bytes)
    keys = [f"k{number}" for number in range(20)]
    decisions = await asyncio.gather(*(limiter.try_acquire(key) for key in keys))
    assert {decision.source for decision in decisions} == {"fail_closed"}
    await recovered(limiter)
    assert await used(limiter, keys) == [1] * len(keys)  # the call had arrived


async def test_kills_under_load_leave_no_key_without_an_expiry(server: Server, backend_of: BackendOf) -> None:
    """All policies, new keys and known ones; and no call is charged twice, answered or not."""
    kinds = [*policies(1_000_000, LONG), SlidingLog(1000, LONG)]
    limiters = [
        Limiter(policy, backend_of(server.url(), breaker=no_breaker()), failure="closed") for policy in kinds * 2
    ]
    asked: Counter[tuple[int, str]] = Counter()
    admitted: Counter[tuple[int, str]] = Counter()
    killed = 0
    running = True

    def kill() -> None:
        nonlocal killed
        end = time.monotonic() + 4 * PATIENCE
        while killed < KILLS and time.monotonic() < end:
            before = sum(admitted.values())
            killed += server.admin.client_kill_filter(_type="normal", skipme=True)
            while sum(admitted.values()) < before + 20 and time.monotonic() < end:
                time.sleep(0.001)  # connections that are never opened would not be worth a kill

    async def ask(caller: int) -> None:
        number = 0
        while running:
            number += 1
            which = (caller + number) % len(limiters)
            place = which % len(kinds), f"k{caller} {number % 10}"
            asked[place] += 1
            admitted[place] += (await limiters[which].try_acquire(place[1])).allowed

    callers = [asyncio.create_task(ask(caller)) for caller in range(20)]
    await asyncio.to_thread(kill)
    running = False
    await asyncio.wait(callers)
    for caller in callers:
        caller.result()
    assert killed >= KILLS
    assert server.immortal_keys() == []
    await recovered(limiters[0])
    for (which, key), times in asked.items():
        limiter = limiters[which]
        (charged,) = await used(limiter, [key])
        assert admitted[which, key] <= charged <= times
