"""Where the connections come from: a URL, or a client that the application already has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MaxConnectionsError, RedisError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator

    from redis.asyncio.connection import AbstractConnection

SCHEMES = {"redis": "redis", "rediss": "rediss", "unix": "unix", "valkey": "redis", "valkeys": "rediss"}
"""The URL schemes, and what redis-py calls them."""

_ENCODE = "its port must be 1 to 65535, and the characters / ? # @ [ ] : in its user and password percent-encoded"

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
        ready: A pool that the application already has. It serves the loop that asks first; others get one like it.
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
        self._ready_for: asyncio.AbstractEventLoop | None = None
        self.max_connections = max_connections
        self.address = address
        self.are_owned = ready is None
        """Whether all of them are this backend's own."""

    def next(self, loop: asyncio.AbstractEventLoop) -> tuple[ConnectionPool, bool]:
        """A pool for this loop, and whether it is ours to close."""
        if self._ready is None or self._ready_for not in {None, loop}:
            return self._make(), True
        self._ready_for = loop
        return self._ready, False

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
    for mistake in _mistakes(url):
        raise ValueError(f"cannot use the URL {redacted(url)!r}: {mistake}")
    parts = urlsplit(url)
    plain = urlunsplit(parts._replace(scheme=SCHEMES[parts.scheme]))
    most = int(parse_qs(parts.query).get("max_connections", [str(max_connections)])[0])

    def make() -> ConnectionPool:
        pool = ConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]  (not typed all through)
            plain, protocol=2, max_connections=most
        )
        pool.connection_kwargs.update(_OURS, retry=Retry(NoBackoff(), 0))
        return pool

    try:
        pool = make()
        pool.connection_class(**pool.connection_kwargs)  # connects to nothing, but says which option it does not know
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        what = f"unknown option {unknown[1]!r}" if unknown else str(error)
        raise ValueError(f"cannot use the URL {redacted(url)!r}: {what}") from None
    except (ValueError, RedisError) as error:
        raise ValueError(f"cannot use the URL {redacted(url)!r}: {error}") from None
    return Pools(make, most, redacted(url))


def _mistakes(url: str) -> Iterator[str]:
    """What is wrong with a URL, without a word of its password."""
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        yield _ENCODE
        return
    if parts.scheme not in SCHEMES or "://" not in url:
        yield f"it must start with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
    if parts.fragment or "@" in parts.path + parts.query:
        yield _ENCODE
    path = unquote(parts.path).strip("/")
    if parts.scheme == "unix" and not path:
        yield "it must name the path of a socket, as in unix:///run/redis.sock"
    if parts.scheme != "unix" and path and not path.isdecimal():
        yield "its path must be a database number, as in redis://localhost:6379/0"
    if port == 0:
        yield "its port must be 1 to 65535"
    yield from _mistakes_in_options(options)


def _mistakes_in_options(options: dict[str, list[str]]) -> Iterator[str]:
    for name, least in (("db", 0), ("max_connections", 1)):
        value = options.get(name, [str(least)])[0]
        if not value.isdecimal() or int(value) < least:
            yield f"{name} must be a whole number, {least} or more, not {value!r}"
    for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        file = options.get(name, [""])[0]
        if file and not Path(file).exists():
            yield f"{name} names {file!r}, which does not exist"


def redacted(url: str) -> str:
    """The URL without user, password and options, whatever state it is in."""
    scheme, mark, rest = url.partition("://")
    place = (rest if mark else scheme).rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme}://{place}" if mark else place


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

    settings = pool.connection_kwargs
    address = settings.get("path") or f"{settings.get('host', 'client')}:{settings.get('port', '')}".rstrip(":")
    return Pools(copy, most, address, pool)


class PoolConnector:
    """Gives lanes the connections of one pool.

    Args:
        pool: The pool.
        owned: Whether it is this backend's alone. If not, it may be that the application waits for its connections.
    """

    def __init__(self, pool: ConnectionPool, *, owned: bool) -> None:
        self._pool = pool
        self._owned = owned
        self._socket_timeout = pool.connection_kwargs.get("socket_timeout")
        self.only_one = not owned and pool.max_connections == 1
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
        connection = await get_connection(*self._arguments)
        connection.socket_timeout = None  # the deadline is kept by the hub, and is the only one
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Give one back to the pool, as it was."""
        connection.socket_timeout = self._socket_timeout
        await self._pool.release(connection)

    async def aclose(self) -> None:
        """Close the pool's connections, if it is ours."""
        if self._owned:
            await self._pool.disconnect()
