"""Where the connections come from: a URL, or a client that the application already has."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MaxConnectionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


class Pools:
    """Makes the connection pools of one backend: one for each event loop and process.

    Args:
        make: Makes a pool, without I/O.
        max_connections: The most connections in each.
        address: How to name the server; no password.
        ready: A pool that the application already has. It serves whoever asks first; others get one like it.
    """

    def __init__(
        self,
        make: Callable[[], ConnectionPool],
        max_connections: int,
        address: str,
        ready: ConnectionPool | None = None,
    ) -> None:
        self._make = make
        self._ready = ready
        self.max_connections = max_connections
        self.address = address

    def next(self) -> tuple[ConnectionPool, bool]:
        """A pool, and whether it is ours to close."""
        pool, self._ready = self._ready, None
        return (self._make(), True) if pool is None else (pool, False)

    def forget_ready(self) -> None:
        """Do not hand out the application's own pool: it belongs to another process."""
        self._ready = None


def pools_of_url(url: str, max_connections: int) -> Pools:
    """Read a URL; no I/O.

    Raises:
        TypeError: When it is no text.
        ValueError: When it is not one of `SCHEMES`, or a part of it is wrong.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a text such as 'redis://localhost:6379/0', not {type(url).__name__}")
    parts = urlsplit(url)
    address = redacted(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"cannot use the URL {address!r}: it must start with one of {known}")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ValueError(
            f"cannot use the URL {address!r}: its path must be a database number, as in redis://localhost/0"
        )
    plain = urlunsplit(parts._replace(scheme=SCHEMES[parts.scheme]))

    def make() -> ConnectionPool:
        pool = ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]  (not typed all through)
            plain, protocol=2, max_connections=max_connections
        )
        pool.connection_kwargs.update(_OURS, retry=Retry(NoBackoff(), 0))
        return pool

    try:
        pool = make()
        pool.connection_class(**pool.connection_kwargs)  # connects to nothing, but says which option it does not know
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot use the URL {address!r}: {error}") from error
    return Pools(make, max_connections, address)


def pools_of_client(client: object, max_connections: int | None) -> Pools:
    """Take the pool of a client that the application already has.

    Raises:
        TypeError: When it is not an asyncio client or pool of redis-py, saying what is.
    """
    pool = client.connection_pool if isinstance(client, Redis) else client
    if not isinstance(pool, ConnectionPool):
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise TypeError(f"client must be a redis.asyncio.Redis or a redis.asyncio.ConnectionPool, not {kind}")
    most = min(pool.max_connections, max_connections or pool.max_connections)

    def copy() -> ConnectionPool:
        # A blocking pool becomes one that does not block: lanes wait by themselves.
        other = ConnectionPool(pool.connection_class, max_connections=most)
        other.connection_kwargs = dict(pool.connection_kwargs)
        return other

    host = pool.connection_kwargs.get("host") or pool.connection_kwargs.get("path") or "a client's pool"
    return Pools(copy, most, f"{host}:{pool.connection_kwargs.get('port', '')}".rstrip(":"), pool)


def redacted(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    user, found, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}", query="") if found else parts)


class PoolConnector:
    """Gives lanes the connections of one pool.

    Args:
        pool: The pool.
        lanes: How many lanes will ask. A pool of the application with less than twice as many is not held on to: an
        idle
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
        get_connection = cast(
            "Callable[..., Awaitable[AbstractConnection]]",
            pool.get_connection,  # pyright: ignore[reportUnknownMemberType]  (its signature depends on the release)
        )
        return await get_connection(*self._arguments)

    async def release(self, connection: AbstractConnection) -> None:
        """Give one back to the pool."""
        await self._pool.release(connection)

    async def aclose(self) -> None:
        """Close the pool's connections, if it is ours."""
        if self._owned:
            await self._pool.disconnect()
