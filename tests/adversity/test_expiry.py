"""Memory follows active clients: keys go when they carry no information, and nothing keeps them for ever."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiolimit import Limiter
from aiolimit.policies import Policy

from ..conformance.stores import KINDS, PATIENCE, kind_name, policies
from ..integration.common import until
from ..integration.conftest import BackendOf
from ..support.servers import Server

every_kind = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


@pytest.mark.allows_immortal_keys
@every_kind
async def test_a_planted_key_without_an_expiry_heals(kind: type[Policy], server: Server, backend_of: BackendOf) -> None:
    """The next call gives it one, though it is refused; it is admitted again within one period."""
    limiter = Limiter(kind(5, 1), backend_of(server.url()), failure="closed")
    await limiter.charge("k", 8)
    (place,) = server.admin.keys()
    assert server.admin.persist(place)
    assert not await limiter.try_acquire("k", 5)
    assert 0 < server.admin.pttl(place) <= 3 * 1000
    async with asyncio.timeout(PATIENCE):
        while not (decision := await limiter.try_acquire("k")):
            assert decision.retry_after is not None
            await asyncio.sleep(decision.retry_after)
    assert server.immortal_keys() == []


async def test_every_feature_leaves_nothing_behind(server: Server, backend_of: BackendOf) -> None:
    """A thousand keys, all policies, all verbs, cancelled waits too: one key for each bucket, and none in the end."""
    backend = backend_of(server.url())
    rng = random.Random(1)
    places: set[tuple[int, str]] = set()
    limiters = [Limiter(policy, backend, failure="closed") for policy in policies(5, 1)]

    async def use(number: int) -> None:
        which = rng.randrange(len(limiters))
        limiter, key = limiters[which], f"k{rng.randrange(1000)}"
        verb = rng.choice(["try", "many", "up to", "charge", "peek", "refund", "cost 0", "acquire", "cancelled"])
        if verb in {"peek", "refund", "cost 0"}:
            key = f"never used {number}"
            await {"peek": limiter.peek, "refund": limiter.refund}.get(verb, limiter.try_acquire)(key, 0)
            return
        places.add((which, key))
        if verb == "many":
            await limiter.try_acquire_many([key, key])
        elif verb in {"acquire", "cancelled"}:
            waiting = asyncio.ensure_future(limiter.acquire(key).__aenter__())
            await asyncio.wait([waiting], timeout=0.001 if verb == "cancelled" else PATIENCE)
            waiting.cancel()
            await asyncio.wait([waiting])
        else:
            asks = {"try": limiter.try_acquire, "up to": limiter.acquire_up_to, "charge": limiter.charge}
            await asks[verb](key, 2)

    await asyncio.gather(*(use(number) for number in range(2000)))
    assert 0 < server.admin.dbsize() <= len(places)
    await until(lambda: not server.admin.dbsize(), every=0.05)


@pytest.mark.allows_immortal_keys
@pytest.mark.parametrize("eviction", ["allkeys-lru", "volatile-ttl"])
async def test_eviction_takes_a_bucket_as_a_whole_or_not_at_all(
    eviction: str, server: Server, backend_of: BackendOf
) -> None:
    """Under cache pressure a key starts afresh or is as it was; nothing in between, and no error but an outage."""
    backend = backend_of(server.url())
    limiters = [Limiter(policy, backend, failure="closed") for policy in policies(10)]
    for limiter in limiters:
        await limiter.try_acquire_many([(f"k{number}", 10) for number in range(100)])
    server.admin.config_set("maxmemory-policy", eviction)
    server.admin.config_set("maxmemory", server.admin.info("memory")["used_memory"] + 500_000)
    for start in range(0, 4000, 500):
        writing = server.admin.pipeline(transaction=False)
        for number in range(start, start + 500):
            writing.set(f"cache {number}", "x" * 1000)
        writing.execute(raise_on_error=False)  # full, and nothing left to evict
    for limiter in limiters:
        for decision in await limiter.try_acquire_many([f"k{number}" for number in range(100)]):
            assert decision.source in {"redis", "fail_closed"}
            if decision.source == "redis":
                assert decision.remaining == (9 if decision.allowed else 0)
