"""Decisions on a Redis or Valkey server."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING

from ..algorithms import ONE_CALLER, OPS, compile_policy
from ..breaker import CircuitBreaker
from ..errors import BackendUnavailable
from ..events import BreakerMoved, LogListener
from ..keys import SLOTS, KeySpace, checked_name
from ..scripts import NAMES, load
from .base import Place
from .batch import kind
from .batching import MAX_KEYS_PER_CALL, Hub
from .lane import Lane
from .stats import Stats
from .urls import PoolConnector, Pools, pools_of_client, pools_of_url

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Sequence
    from typing import Self

    from redis.asyncio import ConnectionPool, Redis

    from ..algorithms import Answer
    from ..breaker import State
    from ..decision import Source
    from ..errors import BackendError
    from ..events import Event, Listener
    from ..keys import Key
    from ..policies import Policy
    from .batch import Kind

_log = logging.getLogger(__name__)

DEFAULT_LANES = 3
"""Connections to the server: while one call is on its way, another is decided and the answers of a third handed out."""
_MAX_CONNECTIONS = 10_000
_SCRIPTS = {name: load(name) for name in NAMES}  # now: reading files later would hold up the event loop

_closing: set[asyncio.Task[None]] = set()
_abandoned: list[object] = []  # what a forked child must neither use nor close


class RedisBackend:
    """Decides on one Redis or Valkey server, shared by every process that asks there.

    Made without I/O, at import time if you like. Connections belong to the event loop and the process that use them:
    the same backend serves several loops, and the children of a fork.

    Args:
        client: A ``redis.asyncio.Redis`` or ``ConnectionPool`` that the application already has. Its address,
            credentials and ``max_connections`` are used; its protocol, decoding, timeouts and retries change no answer,
            because commands go straight to its connections. Use `from_url` when there is none.
        deadline: Seconds from the question to the answer, at most, connecting included.
        breaker: When to stop asking a server that fails; `CircuitBreaker()` unless given.
        prefix: What every key starts with; no braces, at most 100 characters.
        max_connections: The most connections to the server for each event loop.
        shards: How many hash tags the keys are spread over, 1 to 16,384. Changing it forgets every count.
        hash_keys: Store a digest of every key, so that none can be read in the store.
        max_backlog: How many questions may wait to be sent for each event loop; more are an overload.
        listeners: What is told of every event, see `aiolimit.events`; one `LogListener` unless given.

    Raises:
        TypeError: When ``client`` is not an asyncio client or pool of redis-py.
        ValueError: When another argument is out of its range.
    """

    source: Source = "redis"

    def __init__(
        self,
        client: Redis | ConnectionPool | Pools,
        *,
        deadline: float = 0.1,
        breaker: CircuitBreaker | None = None,
        prefix: str = "aiolimit",
        max_connections: int | None = None,
        shards: int = 64,
        hash_keys: bool = False,
        max_backlog: int = 100_000,
        listeners: Sequence[Listener] | None = None,
    ) -> None:
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
            raise ValueError(f"deadline must be a number of seconds, more than 0, not {deadline!r}")
        if set(checked_name("prefix", prefix)) & set("{}"):
            raise ValueError(f"prefix must have no braces, which Redis Cluster reads as a hash tag: not {prefix!r}")
        if not isinstance(hash_keys, bool):
            raise TypeError(f"hash_keys must be True or False, not {hash_keys!r}")
        if max_connections is not None:
            _check_count("max_connections", max_connections, _MAX_CONNECTIONS)
        _check_count("shards", shards, SLOTS)
        _check_count("max_backlog", max_backlog, 10**9)
        self.stats = Stats()
        """Counters over all event loops of this process."""
        if breaker is not None and not isinstance(breaker, CircuitBreaker):
            raise TypeError(f"breaker must be a CircuitBreaker, not {type(breaker).__name__}")
        self.breaker = breaker or CircuitBreaker()
        """Whether the server is asked; look at its ``state``, or ``force_open``, ``disable`` and ``reset`` it."""
        self.breaker.on_transition = _weakly(self._breaker_moved)
        if listeners is not None and not (isinstance(listeners, list | tuple) and all(map(callable, listeners))):
            raise TypeError(f"listeners must be a list of callables that take an event, not {listeners!r}")
        self._failed_listeners: list[Listener] = []
        self._listeners = (LogListener(),) if listeners is None else tuple(listeners)
        self._pools = client if isinstance(client, Pools) else pools_of_client(client, max_connections)
        # Of the application's own pool, one connection at least is left to the application.
        spare = 0 if self._pools.are_owned else 1
        self._lanes = max(1, min(DEFAULT_LANES, self._pools.max_connections - spare))
        self._deadline = deadline
        self._prefix = prefix
        self._shards = shards
        self._hash_keys = hash_keys
        self._backlog = max_backlog
        self._hubs: dict[asyncio.AbstractEventLoop, tuple[Hub, PoolConnector]] = {}
        self._last_hub: Hub | None = None  # nearly always the one that is asked for next
        self._lock = threading.Lock()  # loops may come from several threads
        _backends.add(self)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        deadline: float = 0.1,
        breaker: CircuitBreaker | None = None,
        prefix: str = "aiolimit",
        max_connections: int | None = None,
        shards: int = 64,
        hash_keys: bool = False,
        max_backlog: int = 100_000,
        listeners: Sequence[Listener] | None = None,
    ) -> Self:
        """Make a backend for the server at this URL; no I/O.

        Args:
            url: ``redis://user:password@host:port/database``, ``rediss://`` for TLS, ``unix:///path?db=0``, or the
                same as ``valkey://`` and ``valkeys://``. Options after ``?`` are those of redis-py's
                ``ConnectionPool.from_url``.
            deadline: As for the class, and so are the rest.
            breaker: See the class.
            prefix: See the class.
            max_connections: See the class.
            shards: See the class.
            hash_keys: See the class.
            max_backlog: See the class.
            listeners: See the class.

        Raises:
            ValueError: When the URL or another argument is wrong, saying what would be right.
        """
        if max_connections is not None:
            _check_count("max_connections", max_connections, _MAX_CONNECTIONS)
        return cls(
            pools_of_url(url, max_connections or DEFAULT_LANES),
            deadline=deadline,
            breaker=breaker,
            prefix=prefix,
            max_connections=max_connections,
            shards=shards,
            hash_keys=hash_keys,
            max_backlog=max_backlog,
            listeners=listeners,
        )

    def __repr__(self) -> str:
        return f"<RedisBackend {self._pools.address} prefix={self._prefix!r} loops={len(self._hubs)}>"

    def __del__(self) -> None:
        """Close what an application forgot to close, and say so."""
        for loop, (hub, connector) in self.__dict__.get("_hubs", {}).items():
            if not loop.is_closed():
                warnings.warn(f"unclosed {self!r}: await its aclose()", ResourceWarning, stacklevel=2, source=self)
                loop.call_soon_threadsafe(_start_closing, hub, connector)

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> Place:
        """Prepare to decide by this policy for the limiter of this name; no I/O."""
        space = KeySpace(self._prefix, name, policy.tag, shards=self._shards, digest=self._hash_keys, group=group)
        rule = compile_policy(policy)
        script = _SCRIPTS[rule.script]
        numbers = tuple(b"%d" % number for number in rule.params)
        kinds = [kind(script, (b"%d" % op, *numbers)) for op in range(OPS)]
        one_caller = [kind(script, (b"%d" % (op + ONE_CALLER), *numbers)) for op in range(OPS)]
        return Place(
            partial(self._ask, kinds, space.key),
            partial(self._ask_many, one_caller, space.key),
            partial(self._decided_without, name),
        )

    def _ask(  # noqa: PLR0917  (positional, because a million calls a second are)
        self,
        kinds: list[Kind],
        redis_key: Callable[[Key], bytes],
        op: int,
        key: Key,
        cost: int,
        deadline: float | None = None,
    ) -> Future[Answer]:
        return self.hub().ask(kinds[op], redis_key(key), cost, deadline)

    async def _ask_many(
        self, kinds: list[Kind], redis_key: Callable[[Key], bytes], op: int, keys: Sequence[Key], costs: Sequence[int]
    ) -> list[Answer | BackendUnavailable]:
        parts = self.hub().ask_many(kinds[op], [redis_key(key) for key in keys], list(costs))
        answers: list[Answer | BackendUnavailable] = []
        for part in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(part, BackendUnavailable):
                answers += [part] * min(MAX_KEYS_PER_CALL, len(keys) - len(answers))
            elif isinstance(part, BaseException):
                raise part
            else:
                answers += part
        return answers

    def _decided_without(self, limiter: str, source: Source, decisions: int, error: BackendError) -> None:
        self.stats.count_without(source, decisions)
        self.hub().decided_without(limiter, source, decisions, error)

    def _breaker_moved(self, old: State, new: State) -> None:
        self._tell(BreakerMoved(self._pools.address, old, new))

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001  (an observer's mistake must not become the caller's)
                if listener not in self._failed_listeners:
                    self._failed_listeners.append(listener)
                    _log.exception("a listener failed; this is said once")

    def hub(self) -> Hub:
        """What this event loop holds of the server."""
        loop = asyncio.get_running_loop()
        hub = self._last_hub
        if hub is None or hub.loop is not loop:
            held = self._hubs.get(loop)
            hub = self._last_hub = self._new_hub(loop) if held is None else held[0]
        return hub

    def _new_hub(self, loop: asyncio.AbstractEventLoop) -> Hub:
        with self._lock:
            for other in [other for other in self._hubs if other.is_closed()]:
                del self._hubs[other]
            pool, owned = self._pools.next(loop)
        connector = PoolConnector(pool, owned=owned)
        hub = Hub(
            loop,
            lambda hub: Lane(hub, connector),
            breaker=self.breaker,
            tell=_weakly(self._tell),
            server=self._pools.address,
            stats=self.stats,
            lanes=self._lanes,
            deadline=self._deadline,
            backlog=self._backlog,
        )
        with self._lock:
            self._hubs[loop] = hub, connector
        return hub

    def forget_parents_connections(self) -> None:
        """In the child of a fork: start anew. Closing what the parent holds would reach its server."""
        _abandoned.append((self._hubs, self._pools))
        self._hubs = {}
        self._last_hub = None
        self._lock = threading.Lock()
        self._pools.forget_ready()

    async def aclose(self) -> None:
        """Close this event loop's connections. Deciding again opens new ones."""
        with self._lock:
            held = self._hubs.pop(asyncio.get_running_loop(), None)
            self._last_hub = None
        if held is not None:
            await _close(*held)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _start_closing(hub: Hub, connector: PoolConnector) -> None:
    task = hub.loop.create_task(_close(hub, connector))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close(hub: Hub, connector: PoolConnector) -> None:
    await hub.aclose()
    await connector.aclose()


def _weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Call a method as long as its object is there: who is told of events must not keep the teller alive."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: object) -> None:
        found = reference()
        if found is not None:
            found(*arguments)

    return call


def _check_count(what: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{what} must be a whole number from 1 to {most}, not {value!r}")


_backends: weakref.WeakSet[RedisBackend] = weakref.WeakSet()


def _forget_parents_connections() -> None:
    for backend in list(_backends):
        backend.forget_parents_connections()


os.register_at_fork(after_in_child=_forget_parents_connections)
