"""What a URL or a client of the application has to be, said before any connection is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster

from aiolimit import Limiter, RedisBackend

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must start with"),
        ("localhost:6379", "must start with"),
        ("http://localhost", "redis://"),
        ("redis+smoke://localhost", "redis://"),
        ("redis://localhost:port/0", "port"),
        ("redis://localhost:70000/0", "port"),
        ("redis://localhost:-1/0", "port"),
        ("redis://localhost:0/0", "port"),
        ("redis://[::1/0", "cannot use the URL"),
        ("redis://localhost/first", "database number"),
        ("redis://localhost/0/1", "database number"),
        ("redis://localhost/-1", "database number"),
        ("redis://localhost?db=one", "db"),
        ("redis://localhost?db=-1", "db"),
        ("redis://localhost?colour=red", "colour"),
        ("redis://localhost?socket_connect_timeout=soon", "socket_connect_timeout"),
        ("redis://localhost?max_connections=0", "max_connections"),
        ("redis://localhost?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("unix://", "socket"),
        ("unix:///tmp/s?db=x", "db"),
    ],
)
def test_a_wrong_url_says_what_is_wrong_with_it(url: str, said: str) -> None:
    """Before any I/O, with the URL in the text, from a backend as from a limiter."""
    for make in (RedisBackend.from_url, lambda address: Limiter("1/s", address)):
        with pytest.raises(ValueError, match="cannot use the URL") as failed:
            make(url)
        assert said in str(failed.value)


def test_a_certificate_that_is_not_there_is_no_outage(tmp_path: Path) -> None:
    """It would fail every connection, for ever."""
    with pytest.raises(ValueError, match="cannot use the URL"):
        RedisBackend.from_url(f"rediss://localhost?ssl_ca_certs={tmp_path / 'none.pem'}")


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@localhost:port/0",
        f"redis://user:{SECRET}@localhost/first",
        f"redis://user:{SECRET}@localhost?colour=red",
        f"postgres://user:{SECRET}@localhost",
        f"redis://localhost:port?password={SECRET}",
        f"redis//:{SECRET}@localhost",
        f"redis:/user:{SECRET}@localhost",
        f"redis://:{SECRET}/x@localhost:6379/0",
        f"redis://:x/{SECRET}@localhost:6379/0",
        f"redis://:{SECRET}#x@localhost:6379/0",
        f"redis://:{SECRET}?x@localhost:6379/0",
        f"redis://:{SECRET}[x@localhost:6379/0",
        f"unix://user:{SECRET}@/tmp/s?db=x",
    ],
)
def test_no_message_tells_the_password(url: str) -> None:
    """Nor the error that it came from."""
    with pytest.raises(ValueError, match="cannot use the URL") as failed:
        RedisBackend.from_url(url)
    error: BaseException | None = failed.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@localhost:6379/3",
        f"redis://user:{SECRET}@localhost:6379/3",
        f"rediss://user:{SECRET}@localhost",
        f"valkey://user:{SECRET}@localhost",
        f"valkeys://user:{SECRET}@localhost",
        f"unix://user:{SECRET}@/tmp/s",
        f"redis://localhost?username=user&password={SECRET}",
        f"redis://localhost/0?db=2&password={SECRET}",
    ],
)
def test_no_repr_tells_the_password(url: str) -> None:
    """Of a backend, or of the limiter on it."""
    limiter = Limiter("1/s", url)
    assert SECRET not in repr(limiter)
    assert SECRET not in repr(limiter.backend)


def test_a_repr_tells_the_server() -> None:
    """Which is what one wants to know of a backend."""
    backend = RedisBackend.from_url(f"redis://user:{SECRET}@example.com:6380/2")
    assert "example.com:6380/2" in repr(backend)
    client = redis.asyncio.Redis(host="example.com", port=6380, password=SECRET)
    assert "example.com:6380" in repr(RedisBackend(client=client))
    assert SECRET not in repr(RedisBackend(client=client))


@pytest.mark.parametrize("url", [None, 5, b"redis://localhost", ["redis://localhost"]])
def test_a_url_is_text(url: Any) -> None:
    """Anything else is another kind of mistake."""
    with pytest.raises(TypeError, match="url must be a text such as 'redis://"):
        RedisBackend.from_url(url)


class LikeCoredis:
    """What another library's client looks like."""

    connection_pool = object()

    async def evalsha(self, sha1: str, keys: object, args: object) -> object:
        """Never called."""
        raise NotImplementedError


@pytest.mark.parametrize(
    "client",
    [
        redis.Redis(),
        redis.ConnectionPool(),
        redis.asyncio.Connection(),
        LikeCoredis(),
        "redis://localhost",
        None,
        redis.asyncio.Redis,
    ],
    ids=lambda client: getattr(type(client), "__qualname__", ""),
)
def test_another_client_is_told_which_would_do(client: Any) -> None:
    """With its own class in the text."""
    with pytest.raises(TypeError, match=r"client must be a redis\.asyncio\.Redis") as failed:
        RedisBackend(client=client)
    assert type(client).__qualname__ in str(failed.value)


def test_a_cluster_client_is_not_taken_for_one_server() -> None:
    """Its keys lie on many."""
    client: Any = RedisCluster(host="localhost")
    with pytest.raises(TypeError, match="RedisCluster"):
        RedisBackend(client=client)
