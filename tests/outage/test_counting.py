"""What the server executed is counted: whatever happens on the way, no question is executed twice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aiolimit import Decision, Limiter

from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import Server
from .faults import DEADLINE, charged, disabled, recovered

only_redis = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)


def bounds(decisions: list[Decision]) -> list[tuple[int, int]]:
    """The fewest and the most units that the server may have charged for each."""
    return [(one.granted if one.source == "redis" else 0, one.cost) for one in decisions]


async def check(limiter: Limiter, decisions: list[Decision]) -> None:
    """Each has a key of its own: what the server decided is charged, the rest once or never."""
    used = await charged(limiter, [str(one.key) for one in decisions])
    wrong = [
        (one.key, one.source, units)
        for one, units, (least, most) in zip(decisions, used, bounds(decisions), strict=True)
        if units not in {least, most}
    ]
    assert wrong == []


async def test_a_frozen_server_that_wakes_ran_each_call_at_most_once(
    own_server: OwnServer, backend_of: BackendOf
) -> None:
    """A lone caller, two hundred at once and a batch of five hundred, all of them long given up."""
    server = own_server()
    backend = backend_of(server.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    server.reset_stats()
    calls = backend.stats.calls
    server.pause()
    decisions = [await limiter.try_acquire("alone", 3)]
    decisions += await asyncio.gather(*(limiter.try_acquire(f"at once {number}", 3) for number in range(200)))
    decisions += await limiter.try_acquire_many([(f"batch {number}", 3) for number in range(500)])
    assert {decision.source for decision in decisions} == {"fail_open"}
    written = backend.stats.calls - calls
    server.resume()
    await recovered(limiter)
    assert server.commandstats().get("evalsha", 0) <= backend.stats.calls - calls
    assert written < 20
    await check(limiter, decisions)


@only_redis
@pytest.mark.parametrize("seed", range(3))
async def test_faults_at_random(seed: int, wire: FaultProxy, backend_of: BackendOf) -> None:
    """Cuts in mid-reply, resets, stalls, dead connections and delays, under load, for a second."""
    chance = random.Random(seed)
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    decisions: list[Decision] = []
    ends = False

    async def caller(name: int) -> None:
        number = 0
        while not ends:
            number += 1
            if name % 10:
                decisions.append(await limiter.try_acquire(f"{name} {number}", 1 + number % 5))
            else:
                decisions.extend(await limiter.try_acquire_many([(f"{name} {number} {of}", 2) for of in range(50)]))
            await asyncio.sleep(chance.uniform(0, 0.02))

    async def trouble() -> None:
        nonlocal ends
        end = asyncio.get_running_loop().time() + 1.0
        while asyncio.get_running_loop().time() < end:
            what = chance.randrange(5)
            if what == 0:
                wire.cut()
            elif what == 1:
                wire.cut_after(chance.randrange(60))
            elif what == 2:
                wire.half_open()
            elif what == 3:
                wire.stall()
                await asyncio.sleep(chance.uniform(0, 0.15))
                wire.resume()
            else:
                wire.latency = chance.choice([0, 0.001, 0.02, 0.12])
            await asyncio.sleep(chance.uniform(0, 0.05))
        ends = True

    await asyncio.gather(trouble(), *(caller(name) for name in range(30)))
    wire.latency = 0.0
    wire.cut()
    await recovered(limiter)
    assert {decision.source for decision in decisions} == {"redis", "fail_open"}
    await check(limiter, decisions)


@only_redis
async def test_nobody_waits_for_what_was_charged_in_vain(wire: FaultProxy, backend_of: BackendOf) -> None:
    """A waiter whose answer was lost does not ask again by itself where the policy decides."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend)
    await recovered(limiter)
    wire.cut_after(3)
    decision = await limiter.acquire("k", 5)
    assert decision.source == "fail_open"
    assert await charged(limiter, ["k"]) == [5]


@pytest.mark.parametrize("verb", ["charge", "refund", "acquire_up_to", "try_acquire", "many"])
@only_redis
async def test_each_verb_is_sent_once(verb: str, server: Server, wire: FaultProxy, backend_of: BackendOf) -> None:
    """Its reply is cut, its script call is not repeated."""
    backend = backend_of(wire.url(), deadline=5, breaker=disabled(), listeners=[])
    limiter = Limiter("100/h", backend)
    await limiter.charge("k", 50)
    ask: Any = {"many": lambda key, cost: limiter.try_acquire_many([(key, cost)])}.get(verb) or getattr(limiter, verb)
    await ask("other", 1)  # the script is known
    server.reset_stats()
    wire.cut_after(3)
    found = await ask("k", 10)
    assert (found[0] if isinstance(found, list) else found).source == "fail_open"
    assert server.commandstats()["evalsha"] == 1
    assert await charged(limiter, ["k"]) == [40 if verb == "refund" else 60]
