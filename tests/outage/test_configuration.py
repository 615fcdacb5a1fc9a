"""A mistake in the configuration is no outage: it raises, says what to do, and opens nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from aiolimit import BackendError, BackendUnavailable, CircuitBreaker, Limiter, RedisBackend

from ..conftest import OwnServer
from ..integration.conftest import BackendOf
from ..support.servers import HOST, Server
from .faults import DEADLINE, SOURCES, Failure, recovered, until

every_policy = pytest.mark.parametrize("failure", ["open", "closed", "local"])


async def everybody(limiter: Limiter) -> list[Any]:
    """What a lone caller, two hundred at once, every verb and a batch of five hundred hear."""
    return [
        *await asyncio.gather(limiter.try_acquire("k"), return_exceptions=True),
        *await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(200)), return_exceptions=True),
        *await asyncio.gather(
            limiter.peek("k"),
            limiter.acquire_up_to("k", 3),
            limiter.charge("k"),
            limiter.refund("k"),
            limiter.reset("k"),
            _waiting(limiter),
            limiter.try_acquire_many(["k"] * 500),
            return_exceptions=True,
        ),
    ]


async def _waiting(limiter: Limiter) -> Any:
    async with limiter.acquire("k") as decision:
        return decision


def assert_mistake(found: list[Any], remedy: str, backend: RedisBackend) -> None:
    """Everybody hears of it, nobody is admitted or refused, and the breaker hears nothing."""
    assert {type(one) for one in found} == {BackendError}
    assert all(remedy in str(one) for one in found)
    stats = backend.stats
    assert (stats.failures, stats.fail_open, stats.fail_closed, stats.fallback) == (0, 0, 0, 0)
    assert backend.breaker.state == "closed"


@every_policy
async def test_a_password_that_was_changed(failure: Failure, own_server: OwnServer, backend_of: BackendOf) -> None:
    """Found by the next connection; with the old one back the server decides again."""
    server = own_server(password="old")
    backend = backend_of(server.url(), breaker=CircuitBreaker(failures=1), listeners=[])
    limiter = Limiter("1000/h", backend, failure=failure)
    await recovered(limiter)
    server.admin.config_set("requirepass", "new")
    server.admin.client_kill_filter(_type="normal", skipme=True)
    await asyncio.sleep(0.05)
    assert_mistake(await everybody(limiter), "redis://user:password@host", backend)
    server.admin.config_set("requirepass", "old")
    assert (await limiter.try_acquire("k")).source == "redis"


@every_policy
@pytest.mark.parametrize("right", ["evalsha", "mget", "set", "time"])
async def test_a_user_that_loses_a_right(right: str, failure: Failure, server: Server, backend_of: BackendOf) -> None:
    """Of the command itself, or inside the script, on connections that are open."""
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all")
    url = server.url(username="u", password="p")
    backend = backend_of(url, breaker=CircuitBreaker(failures=1), listeners=[])
    limiter = Limiter("1000/h", backend, failure=failure)
    await recovered(limiter)
    await limiter.try_acquire("k")
    server.admin.execute_command("ACL", "SETUSER", "u", f"-{right}")
    found = await everybody(limiter)
    if right in {"set", "time", "mget"}:  # looking and forgetting need fewer rights
        found = [one for one in found if isinstance(one, BaseException)]
        assert len(found) >= 202
    assert_mistake(found, f"+{right}", backend)
    server.admin.execute_command("ACL", "SETUSER", "u", f"+{right}")
    assert (await limiter.try_acquire("k")).source == "redis"


async def test_a_user_that_is_deleted(server: Server, backend_of: BackendOf) -> None:
    """The server hangs up on it, and then does not know it."""
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all")
    backend = backend_of(server.url(username="u", password="p"), breaker=CircuitBreaker(failures=1), listeners=[])
    limiter = Limiter("1000/h", backend)
    await recovered(limiter)
    server.admin.execute_command("ACL", "DELUSER", "u")
    await asyncio.sleep(0.05)
    assert_mistake(await everybody(limiter), "redis://user:password@host", backend)


async def test_a_mistake_hides_no_outage_and_no_outage_a_mistake(own_server: OwnServer, backend_of: BackendOf) -> None:
    """First the server is gone, then it is back with another password, then with the right one."""
    server = own_server(password="old")
    breaker = CircuitBreaker(failures=1, open_for=0.05, max_open_for=0.05)
    backend = backend_of(server.url(), deadline=1, breaker=breaker, listeners=[])
    limiter = Limiter("1000/h", backend, failure="open")
    await recovered(limiter)
    await asyncio.to_thread(server.kill)
    for _ in range(3):
        assert (await limiter.try_acquire("k")).source == "fail_open"
    await asyncio.to_thread(server.start)
    server.admin.config_set("requirepass", "new")
    with pytest.raises(BackendError, match="user:password@") as found:  # noqa: PT012  (until the probe is due)
        async with asyncio.timeout(10):
            while True:
                assert (await limiter.try_acquire("k")).source == "fail_open"
                await asyncio.sleep(0.01)
    assert not isinstance(found.value, BackendUnavailable)
    assert breaker.state == "closed"
    server.admin.config_set("requirepass", "old")
    await recovered(limiter)


@every_policy
async def test_a_server_with_too_many_clients_is_an_outage(
    failure: Failure, own_server: OwnServer, backend_of: BackendOf
) -> None:
    """It takes no new connection: the policy decides, it is counted, and it is over when there is room."""
    server = own_server(config={"maxclients": "10"})
    breaker = CircuitBreaker(failures=3, open_for=0.1, max_open_for=0.1)
    backend = backend_of(server.url(), deadline=DEADLINE, breaker=breaker, listeners=[])
    limiter = Limiter("1000/h", backend, failure=failure)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection((HOST, server.port)))
        await until(lambda: server.admin.info("clients")["connected_clients"] >= 10)
        decisions = [await limiter.try_acquire(f"k{number}") for number in range(3)]
        assert backend.stats.failures >= 3
        decisions += await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(200)))
        decisions += await limiter.try_acquire_many(["k"] * 500)
        assert {decision.source for decision in decisions} == {SOURCES[failure]}
        assert breaker.state != "closed"
    await recovered(limiter)
