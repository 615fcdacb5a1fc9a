"""A server that answers, but not now: the failure policy decides, and as soon as it can the server does again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from aiolimit import BackendError, BackendUnavailable, Limiter, SlidingLog
from aiolimit.policies import Policy

from ..conformance.stores import kind_name, policies
from ..integration.common import no_breaker, recovered, until, used
from ..integration.conftest import BackendOf
from ..support.servers import Server

every_policy = pytest.mark.parametrize(
    "policy", [*policies(100), SlidingLog(1000, 3600)], ids=lambda p: f"{kind_name(p)}-{p.limit}"
)


def _config(server: Server, **settings: object) -> None:
    for name, value in settings.items():
        server.admin.config_set(name.replace("_", "-"), value)


@asynccontextmanager
async def state(name: str, server: Server) -> AsyncIterator[None]:
    """The server is in this state."""
    admin: Any = server.admin
    if name == "OOM":
        _config(server, maxmemory_policy="noeviction", maxmemory=1)
        yield
        _config(server, maxmemory=0)
    elif name in {"READONLY", "MASTERDOWN"}:
        _config(server, replica_serve_stale_data="no" if name == "MASTERDOWN" else "yes")
        admin.replicaof("127.0.0.1", 1)
        yield
        admin.replicaof("NO", "ONE")
    elif name == "BUSY":
        _config(server, busy_reply_threshold=20)
        loop = "local t = redis.call('TIME') while true do redis.call('TIME') end"
        running = asyncio.create_task(asyncio.to_thread(admin.eval, loop, 0))
        with redis.Redis.from_url(server.unix_url(), protocol=2) as other:
            await until(lambda: "BUSY" in _ping(other), every=0.002)
            yield
            other.script_kill()
        with contextlib.suppress(redis.ResponseError):
            await running
    elif name == "LOADING":
        admin.execute_command("DEBUG", "POPULATE", "1500", "filler", "100")
        _config(server, key_load_delay=500, loading_process_events_interval_bytes=1024)
        running = asyncio.create_task(asyncio.to_thread(admin.execute_command, "DEBUG", "RELOAD"))
        with redis.Redis.from_url(server.unix_url(), protocol=2) as other:
            await until(lambda: "LOADING" in _ping(other) or running.done(), every=0.002)
            assert not running.done()
            yield
        await running


def _ping(client: redis.Redis) -> str:
    try:
        return str(client.ping())
    except redis.BusyLoadingError:
        return "LOADING"
    except redis.ResponseError as error:
        return str(error)


@pytest.mark.allows_immortal_keys
@pytest.mark.parametrize("name", ["OOM", "READONLY", "MASTERDOWN", "BUSY", "LOADING"])
async def test_the_failure_policy_decides_meanwhile(name: str, server: Server, backend_of: BackendOf) -> None:
    """For single calls and for batches, soon, and nothing is charged twice."""
    limiter = Limiter("100/h", backend_of(server.url(), deadline=5, breaker=no_breaker()), failure="open")
    await recovered(limiter)
    async with state(name, server), asyncio.timeout(10):
        decisions = await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(10)))
        decisions += await limiter.try_acquire_many(["k0", "l"])
    assert {decision.source for decision in decisions} == {"fail_open"}
    await recovered(limiter)
    assert await used(limiter, ["k0", "k1", "l"]) == [0, 0, 0]


@every_policy
async def test_a_full_memory_refuses_every_policy_alike(policy: Policy, server: Server, backend_of: BackendOf) -> None:
    """New keys and used ones, alone and in a batch: no half state, no consumption, and at once right again."""
    limiter = Limiter(policy, backend_of(server.url(), breaker=no_breaker()), failure="closed")
    await limiter.try_acquire("used", 60)
    dumped = {key: server.admin.dump(key) for key in server.admin.scan_iter()}
    async with state("OOM", server):
        for ask in (limiter.try_acquire, limiter.charge, limiter.acquire_up_to):
            for key in ("used", "new"):
                assert (await ask(key, 30)).source == "fail_closed"
        decisions = await limiter.try_acquire_many(["new", ("used", 30), "other", "new"])
        assert {decision.source for decision in decisions} == {"fail_closed"}
    assert {key: server.admin.dump(key) for key in server.admin.scan_iter()} == dumped
    assert (await limiter.try_acquire("used", 30)).remaining == policy.limit - 90


@every_policy
async def test_a_foreign_value_is_an_error_for_its_callers_alone(
    policy: Policy, server: Server, backend_of: BackendOf
) -> None:
    """Not an outage, though they travel with a hundred others; a caller's own batch raises and charges nothing."""
    limiter = Limiter(policy, backend_of(server.url()), failure="open")
    await limiter.try_acquire("bad")
    (place,) = server.admin.keys()
    for value in ("foreign", "1:2:3:4:5", "-1:5", ""):
        server.admin.set(place, value, px=60_000)
        keys = [*(f"k{number}" for number in range(50)), "bad", *(f"l{number}" for number in range(50))]
        answers: list[Any] = await asyncio.gather(*(limiter.try_acquire(key) for key in keys), return_exceptions=True)
        wrong = [key for key, answer in zip(keys, answers, strict=True) if isinstance(answer, BaseException)]
        if value:  # an empty text is no value of anybody
            assert wrong == ["bad"]
            assert isinstance(answers[50], BackendError)
            assert not isinstance(answers[50], BackendUnavailable)
            assert "did not write" in str(answers[50])
            with pytest.raises(BackendError, match="did not write"):
                await limiter.try_acquire_many(["fresh", "bad"])
            assert server.admin.get(place) == value.encode()
            assert await used(limiter, ["fresh"]) == [0]
        else:
            assert wrong in ([], ["bad"])
