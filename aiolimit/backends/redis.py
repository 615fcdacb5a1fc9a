"""Decisions on a Redis or Valkey server."""

from __future__ import annotations

import asyncio
import math
import os
import weakref
from typing import TYPE_CHECKING, cast

from ..algorithms import Answer, compile_policy
from ..keys import SLOTS, KeySpace
from ..scripts import load
from .batching import Hub, Stats, kind
from .lane import Lane
from .urls import PoolConnector, client_pool, copy_pool, pool_maker, redacted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Self

    from redis.asyncio import ConnectionPool, Redis

    from ..algorithms import Rule
    from ..decision import Source
    from ..keys import Key
    from ..policies import Policy

DEFAULT_LANES = 2
"""Connections to the server: while one waits for it, the other's answers are handed out."""
_MAX_NAME = 100

_abandoned: list[object] = []  # what a forked child must neither use nor close


class RedisBackend:
    """Decides on one Redis or Valkey server, shared by every process that asks there.

    Made without I/O, at import time if you like. Connections belong to the event loop and the process that use them: the
    same backend serves several loops, and the children of a fork.

    Args:
        client: A ``redis.asyncio.Redis`` or ``ConnectionPool`` that the application already has. Its address, credentials
            and ``max_connections`` are used; its protocol, decoding, timeouts and retries change no answer, because
            commands go straight to its connections. Use `from_url` when there is none.
        deadline: Seconds from the question to the answer, at most, connecting included.
        prefix: What every key starts with; no braces, at most 100 characters.
        max_connections: The most connections to the server for each event loop.
        shards: How many hash tags the keys are spread over, 1 to 16,384. Changing it forgets every count.
        hash_keys: Store a digest of every key, so that none can be read in the store.
        max_backlog: How many questions may wait to be sent for each event loop; more raise `BackendOverloaded`.

    Raises:
        TypeError: When ``client`` is not an asyncio client or pool of redis-py.
        ValueError: When another argument is out of its range.
    """

    source: Source = "redis"

    def __init__(
        self,
        client: Redis | ConnectionPool,
        *,
        deadline: float = 0.1,
        prefix: str = "aiolimit",
        max_connections: int | None = None,
        shards: int = 64,
        hash_keys: bool = False,
        max_backlog: int = 100_000,
    ) -> None:
        pool = client_pool(client)
        self._set_up(deadline, prefix, max_connections, shards, hash_keys, max_backlog)
        self._lanes = min(self._lanes, pool.max_connections)
        self._pool: ConnectionPool | None = pool
        self._make_pool: Callable[[], ConnectionPool] = lambda: copy_pool(pool)
        self._address = repr(pool)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        deadline: float = 0.1,
        prefix: str = "aiolimit",
        max_connections: int | None = None,
        shards: int = 64,
        hash_keys: bool = False,
        max_backlog: int = 100_000,
    ) -> Self:
        """Make a backend for the server at this URL; no I/O. The other arguments are those of the class.

        Args:
            url: ``redis://user:password@host:port/database``, ``rediss://`` for TLS, ``unix:///path?db=0``, or the same as
                ``valkey://`` and ``valkeys://``. Options after ``?`` are those of redis-py's ``ConnectionPool.from_url``.

        Raises:
            ValueError: When the URL or another argument is wrong, saying what would be right.
        """
        self = cls.__new__(cls)
        self._set_up(deadline, prefix, max_connections, shards, hash_keys, max_backlog)
        self._pool = None
        self._make_pool = pool_maker(url, self._lanes)
        self._address = redacted(url)
        return self

    def _set_up(
        self, deadline: float, prefix: str, max_connections: int | None, shards: int, hash_keys: bool, max_backlog: int
    ) -> None:
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
            raise ValueError(f"deadline must be seconds, more than 0, not {deadline!r}")
        if not isinstance(prefix, str) or not prefix or len(prefix) > _MAX_NAME or set(prefix) & set("{}"):
            raise ValueError(f"prefix must be a text of 1 to {_MAX_NAME} characters without braces, not {prefix!r}")
        _check_count("max_connections", DEFAULT_LANES if max_connections is None else max_connections, 10_000)
        _check_count("shards", shards, SLOTS)
        _check_count("max_backlog", max_backlog, 10**9)
        self.stats = Stats()
        """Counters over all event loops of this process."""
        self._deadline = deadline
        self._prefix = prefix
        self._shards = shards
        self._hash_keys = hash_keys
        self._backlog = max_backlog
        self._lanes = min(DEFAULT_LANES, max_connections or DEFAULT_LANES)
        self._hubs: dict[asyncio.AbstractEventLoop, tuple[Hub, PoolConnector]] = {}
        _backends.add(self)

    def __repr__(self) -> str:
        return f"<RedisBackend {self._address} prefix={self._prefix!r} loops={len(self._hubs)}>"

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> _RedisPlace:
        """Prepare to decide by this policy for the limiter of this name; no I/O."""
        if len(name) > _MAX_NAME:
            raise ValueError(f"name must have at most {_MAX_NAME} characters, not {len(name)}")
        space = KeySpace(
            self._prefix, name, policy.tag, shards=self._shards, digest=self._hash_keys, group=group
        )
        return _RedisPlace(self, space, compile_policy(policy))

    def hub(self) -> Hub:
        """What this event loop holds of the server."""
        loop = asyncio.get_running_loop()
        held = self._hubs.get(loop)
        return held[0] if held is not None else self._new_hub(loop)

    def _new_hub(self, loop: asyncio.AbstractEventLoop) -> Hub:
        for other in [other for other in self._hubs if other.is_closed()]:
            self._hubs.pop(other, None)
        pool, self._pool = self._pool, None  # an application's own pool serves the first loop that asks
        connector = PoolConnector(pool or self._make_pool(), lanes=self._lanes, owned=pool is None)
        hub = Hub(
            loop,
            lambda hub: Lane(hub, connector),
            self.stats,
            lanes=self._lanes,
            deadline=self._deadline,
            backlog=self._backlog,
        )
        self._hubs[loop] = hub, connector
        return hub

    async def aclose(self) -> None:
        """Close this event loop's connections. Deciding again opens new ones."""
        held = self._hubs.pop(asyncio.get_running_loop(), None)
        if held is not None:
            hub, connector = held
            await hub.aclose()
            await connector.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _RedisPlace:
    """One policy of one limiter on a `RedisBackend`."""

    __slots__ = ("_backend", "_key", "_kinds")

    def __init__(self, backend: RedisBackend, space: KeySpace, rule: Rule) -> None:
        self._backend = backend
        self._key = space.key
        numbers = tuple(b"%d" % number for number in rule.params)
        self._kinds = [kind(load(rule.script), (b"%d" % op, *numbers)) for op in range(6)]

    def ask(self, op: int, key: Key, cost: int) -> asyncio.Future[Answer]:
        return self._backend.hub().ask(self._kinds[op], self._key(key), cost)

    def ask_many(self, op: int, keys: Sequence[Key], costs: Sequence[int]) -> Awaitable[list[Answer]]:
        redis_keys = [self._key(key) for key in keys]
        return self._joined(self._backend.hub().ask_many(self._kinds[op], redis_keys, list(costs)))

    async def _joined(self, wholes: list[asyncio.Future[list[Answer]]]) -> list[Answer]:
        answers: list[Answer] = []
        for part in cast("list[list[Answer] | BaseException]", await asyncio.gather(*wholes, return_exceptions=True)):
            if isinstance(part, BaseException):
                raise part
            answers += part
        return answers


def _check_count(what: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{what} must be a whole number from 1 to {most}, not {value!r}")


_backends: weakref.WeakSet[RedisBackend] = weakref.WeakSet()


def _forget_parents_connections() -> None:
    for backend in list(_backends):
        _abandoned.append(backend._hubs)  # closing them here would be seen by the parent's server
        backend._hubs = {}
        if backend._pool is not None:
            pool, backend._pool = backend._pool, None
            _abandoned.append(pool)


os.register_at_fork(after_in_child=_forget_parents_connections)
