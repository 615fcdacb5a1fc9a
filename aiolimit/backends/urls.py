"""Where the connections come from: a URL, or a client that the application already has."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MaxConnectionsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.connection import AbstractConnection

SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}
"""The URL schemes, and what redis-py calls them."""

# Ours to decide, whatever the URL says: we pack and read by ourselves, and nothing is ever sent twice.
_OURS: dict[str, Any] = {
    "protocol": 2,
    "decode_responses": False,
    "socket_timeout": None,
    "health_check_interval": 0,
    "retry_on_timeout": False,
    "retry_on_error": [],
}


def pool_maker(url: str, max_connections: int) -> Callable[[], ConnectionPool]:
    """Read a URL. Gives a function that makes a pool for it; no I/O.

    Raises:
        ValueError: When the URL is not one of ``redis:// rediss:// unix:// valkey:// valkeys://``, or part of it is wrong.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a text such as 'redis://localhost:6379/0', not {type(url).__name__}")
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"cannot use {redacted(url)!r}: the URL must start with one of {known}")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ValueError(f"cannot use {redacted(url)!r}: the database must be a number, as in 'redis://localhost:6379/0'")
    plain = urlunsplit(parts._replace(scheme=SCHEMES[parts.scheme]))

    def make() -> ConnectionPool:
        pool = ConnectionPool.from_url(plain, protocol=2, max_connections=max_connections)
        pool.connection_kwargs.update(_OURS, retry=Retry(NoBackoff(), 0))
        return pool

    try:
        pool = make()
        pool.connection_class(**pool.connection_kwargs)  # makes no connection, but says which option it does not know
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot use {redacted(url)!r}: {error}") from error
    return make


def redacted(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    user, found, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}", query="") if found else parts)


def client_pool(client: object) -> ConnectionPool:
    """The pool of a client.

    Raises:
        TypeError: When it is not an asyncio client or pool of redis-py, saying what is.
    """
    if isinstance(client, ConnectionPool):
        return client
    if isinstance(client, Redis):
        return client.connection_pool
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    raise TypeError(f"client must be a redis.asyncio.Redis or a redis.asyncio.ConnectionPool, not {kind}")


def copy_pool(pool: ConnectionPool) -> ConnectionPool:
    """A pool of its own with the settings of another, for another event loop or process."""
    # A blocking pool becomes one that does not block: lanes wait by themselves.
    copy = ConnectionPool(pool.connection_class, max_connections=pool.max_connections)
    copy.connection_kwargs = dict(pool.connection_kwargs)
    return copy


class PoolConnector:
    """Gives lanes the connections of one pool.

    Args:
        pool: The pool.
        lanes: How many lanes will ask. A pool of the application with less than twice as many is not held on to: an idle
            lane gives its connection back.
        owned: Whether the pool is closed with the hub.
    """

    def __init__(self, pool: ConnectionPool, *, lanes: int, owned: bool) -> None:
        self._pool = pool
        self._owned = owned
        self.keeps = owned or pool.max_connections >= 2 * lanes
        named = inspect.signature(pool.get_connection).parameters.get("command_name")
        # redis-py before 5.3 asks for the name of a command; later ones warn of it.
        self._arguments = ("EVALSHA",) if named is not None and named.default is named.empty else ()

    async def connect(self) -> AbstractConnection:
        """A connection that is ready to send; raises `MaxConnectionsError` at once when the pool has none free."""
        pool = self._pool
        if isinstance(pool, BlockingConnectionPool) and not pool.can_get_connection():
            raise MaxConnectionsError(f"all {pool.max_connections} connections are in use")
        return await pool.get_connection(*self._arguments)

    async def release(self, connection: AbstractConnection) -> None:
        """Give one back to the pool."""
        await self._pool.release(connection)

    async def aclose(self) -> None:
        """Close the pool's connections, if it is ours."""
        if self._owned:
            await self._pool.disconnect()
