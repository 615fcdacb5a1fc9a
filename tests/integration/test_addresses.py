"""Every kind of URL, and what stands in it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from aiolimit import BackendError, BackendUnavailable, Limiter

from ..conftest import OwnServer
from ..support.servers import HOST, Server
from .conftest import BackendOf

ODD_PASSWORD = "p@ss:w/rd?#[]%41 ü"


async def works(backend_of: BackendOf, url: str) -> bool:
    """Whether a decision comes from the server there."""
    return (await Limiter("10/h", backend_of(url), failure="closed").try_acquire("k")).source == "redis"


@pytest.mark.parametrize("scheme", ["redis", "valkey", "REDIS"])
async def test_a_tcp_address(scheme: str, server: Server, backend_of: BackendOf) -> None:
    """Under either name."""
    assert await works(backend_of, f"{scheme}://{HOST}:{server.port}")
    assert await works(backend_of, f"{scheme}://{HOST}:{server.port}/3")
    assert await works(backend_of, f"{scheme}://{HOST}:{server.port}?db=4")
    assert set(server.admin.info("keyspace")) == {"db0", "db3", "db4"}


async def test_a_unix_socket(server: Server, backend_of: BackendOf) -> None:
    """With the database as an option."""
    assert await works(backend_of, server.unix_url(5))
    assert set(server.admin.info("keyspace")) == {"db5"}


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_tls(scheme: str, own_server: OwnServer, backend_of: BackendOf) -> None:
    """With the authority's certificate as an option of the URL; without it the server is not trusted."""
    server = own_server(with_tls=True)
    url = server.url().replace("rediss://", f"{scheme}://")
    assert await works(backend_of, url)
    untrusted = await Limiter("10/h", backend_of(url.partition("?")[0]), failure="closed").try_acquire("k")
    assert untrusted.source == "fail_closed"


async def test_a_password_of_any_characters(own_server: OwnServer, backend_of: BackendOf) -> None:
    """Percent-encoded in the URL."""
    server = own_server(password=ODD_PASSWORD)
    assert await works(backend_of, server.url())
    assert await works(backend_of, server.unix_url())


async def test_a_user_and_password_of_any_characters(server: Server, backend_of: BackendOf) -> None:
    """Both of them."""
    user = "us@er:1/ü"
    server.admin.acl_setuser(user, enabled=True, passwords=[f"+{ODD_PASSWORD}"], keys=["*"], commands=["+@all"])
    assert await works(backend_of, server.url(username=user, password=ODD_PASSWORD))


async def test_a_user_and_password_among_the_options(server: Server, backend_of: BackendOf) -> None:
    """As redis-py takes them, too."""
    server.admin.acl_setuser("user", enabled=True, passwords=["+p@ss:w/rd"], keys=["*"], commands=["+@all"])
    secret = quote("p@ss:w/rd", safe="")
    assert await works(backend_of, f"redis://{HOST}:{server.port}?username=user&password={secret}")


async def test_wrong_credentials_are_a_mistake_and_no_outage(server: Server, backend_of: BackendOf) -> None:
    """Never an open gate, and the password is not told."""
    server.admin.acl_setuser("known", enabled=True, passwords=["+right"], keys=["*"], commands=["+@all"])
    server.admin.config_set("requirepass", "right")
    try:
        for url in (
            server.url(username="known", password="hunter2"),
            server.url(username="unknown", password="hunter2"),
            server.url(password="hunter2"),
            server.url(),
        ):
            for _ in range(2):
                with pytest.raises(BackendError, match="did not accept the user or the password") as failed:
                    await Limiter("10/h", backend_of(url), failure="open").try_acquire("k")
                assert not isinstance(failed.value, BackendUnavailable)
                assert "hunter2" not in str(failed.value)
    finally:
        server.admin.config_set("requirepass", "")


async def test_a_database_that_is_not_there_is_a_mistake_and_no_outage(server: Server, backend_of: BackendOf) -> None:
    """It will not be there later either."""
    with pytest.raises(BackendError) as failed:
        await Limiter("10/h", backend_of(server.url(99)), failure="open").try_acquire("k")
    assert not isinstance(failed.value, BackendUnavailable)
    assert "DB index" in str(failed.value)


async def test_databases_count_apart(server: Server, backend_of: BackendOf) -> None:
    """The same key in two of them."""
    for db in (0, 1, 15):
        limiter = Limiter("2/h", backend_of(server.url(db)), failure="closed")
        assert [bool(await limiter.try_acquire("k")) for _ in range(3)] == [True, True, False]


async def test_options_of_a_url_change_no_answer(server: Server, backend_of: BackendOf) -> None:
    """Those that are ours to decide are ours."""
    url = f"{server.url()}?decode_responses=True&encoding=latin-1&protocol=3&health_check_interval=1&retry_on_timeout=1"
    limiter = Limiter("2/h", backend_of(url), failure="closed")
    assert [bool(await limiter.try_acquire(b"\xff")) for _ in range(3)] == [True, True, False]
