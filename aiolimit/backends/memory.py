"""Decisions in this process: the embedded default."""

from __future__ import annotations

import logging
import threading
import time
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from ..algorithms import PEEK, RESET, Answer, Rule, compile_policy
from ..keys import key_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..decision import Source
    from ..keys import Key
    from ..policies import Policy

_log = logging.getLogger(__name__)
_CLEARED_AT_ONCE = 4
_CANDIDATES = 16


def _monotonic_epoch_clock() -> Callable[[], int]:
    """Microseconds since 1970 that start at the wall clock and then only go forward, at the monotonic clock's pace."""
    offset = time.time_ns() - time.monotonic_ns()
    monotonic = time.monotonic_ns
    return lambda: (monotonic() + offset) // 1000


class _Space:
    """The keys of one limiter's policy."""

    __slots__ = ("rule", "states")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.states: dict[Key, Any] = {}


class MemoryBackend:
    """Decides in this process, by the same rules as the scripts. Keys are known to this process alone.

    May be shared by threads and event loops. Keys whose state carries no information any more leave as other decisions
    are taken, a few at a time; there is no task and no timer.

    Args:
        clock: A callable that gives integer microseconds. `FixedWindow` and `SlidingWindow` align to its multiples; the
            default counts from 1970 at the pace of the monotonic clock.
        max_keys: How many keys are kept. When a new one would be one too many, the key nearest to fresh leaves, but never
            one that has used up its limit: if only such keys can be found, the new key is refused until one is fresh.

    Raises:
        ValueError: When ``max_keys`` is less than 1.
    """

    source: Source = "memory"

    def __init__(self, *, clock: Callable[[], int] | None = None, max_keys: int = 1_000_000) -> None:
        if max_keys < 1:
            raise ValueError(f"max_keys must be at least 1, not {max_keys!r}")
        self.max_keys = max_keys
        self._clock = clock or _monotonic_epoch_clock()
        self._spaces: dict[tuple[str, str], _Space] = {}
        self._fresh: list[tuple[int, int, _Space, Key]] = []  # a heap: when to look at a key again
        self._entered = 0
        self._warned = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<MemoryBackend keys={len(self)}>"

    def __len__(self) -> int:
        """How many keys are kept."""
        return len(self._fresh)

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> _MemoryPlace:
        """Prepare to decide by this policy for the limiter of this name. Limiters of one name share their keys."""
        del group  # all keys are in one place already
        rule = compile_policy(policy)
        with self._lock:
            space = self._spaces.setdefault((name, policy.tag), _Space(rule))
            space.rule = rule
        return _MemoryPlace(self, space, rule)

    async def aclose(self) -> None:
        """Forget every key."""
        with self._lock:
            self._fresh.clear()
            for space in self._spaces.values():
                space.states.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _enter(self, space: _Space, key: Key, now: int, reset_us: int) -> None:
        self._entered += 1
        heappush(self._fresh, (now + reset_us, self._entered, space, key))

    def _clear(self, now: int, most: int = _CLEARED_AT_ONCE) -> None:
        """Drop up to ``most`` keys that are fresh again."""
        heap = self._fresh
        while most and heap and heap[0][0] <= now:
            most -= 1
            _, entered, space, key = heap[0]
            reset_us = self._reset_us(space, key, now)
            if reset_us:
                heapreplace(heap, (now + reset_us, entered, space, key))
            else:
                heappop(heap)
                space.states.pop(key, None)

    def _reset_us(self, space: _Space, key: Key, now: int) -> int:
        return space.rule.decide(space.states.get(key), now, PEEK, 0)[1][3]

    def _make_room(self, now: int) -> int:
        """Free a place for one more key. Gives 0, or how long to wait for one, in microseconds."""
        self._clear(now)
        if len(self._fresh) < self.max_keys:
            return 0
        kept: list[tuple[int, int, _Space, Key]] = []
        found = False
        while self._fresh and not found and len(kept) < _CANDIDATES:
            entry = heappop(self._fresh)
            _, _, space, key = entry
            found = space.rule.decide(space.states.get(key), now, PEEK, 1)[1][2] == 0
            if found:
                del space.states[key]
            else:
                kept.append((now + self._reset_us(space, key, now), *entry[1:]))
        for entry in kept:
            heappush(self._fresh, entry)
        if not self._warned:
            self._warned = True
            _log.warning("the memory backend is full: %d keys; raise max_keys, or limit fewer identities", self.max_keys)
        return 0 if found else max(self._fresh[0][0] - now, 1)


class _MemoryPlace:
    """One policy of one limiter in a `MemoryBackend`."""

    __slots__ = ("_backend", "_clock", "_decide", "_heap", "_lock", "_rule", "_space", "_states")

    def __init__(self, backend: MemoryBackend, space: _Space, rule: Rule) -> None:
        self._backend = backend
        self._space = space
        self._rule = rule
        self._decide = rule.decide
        self._states = space.states
        self._clock = backend._clock
        self._heap = backend._fresh
        self._lock = backend._lock

    def ask(self, op: int, key: Key, cost: int) -> Answer:
        if type(key) is not str or not key or not key.isascii():
            key = _canonical(key)
        with self._lock:
            now = self._clock()
            if self._heap and self._heap[0][0] <= now:
                self._backend._clear(now)
            state = self._states.get(key)
            if state is None:
                return self._ask_new(op, key, cost, now)
            if op == RESET:
                # Its entry in the heap stays until its time comes, and finds nothing then.
                self._states[key] = None
                return 0, self._rule.limit, 0, 0
            new, answer = self._decide(state, now, op, cost)
            if new is not state:
                self._states[key] = new
            return answer

    def _ask_new(self, op: int, key: Key, cost: int, now: int) -> Answer:
        if op == RESET:
            return 0, self._rule.limit, 0, 0
        state, answer = self._decide(None, now, op, cost)
        if state is not None:
            if key not in self._states:
                if len(self._heap) >= self._backend.max_keys:
                    wait = self._backend._make_room(now)
                    if wait:
                        return 0, 0, wait, wait
                self._backend._enter(self._space, key, now, answer[3])
            self._states[key] = state
        return answer

    def ask_many(self, op: int, keys: Sequence[Key], costs: Sequence[int]) -> list[Answer]:
        for key in keys:
            if type(key) is not str or not key.isascii():
                key_bytes(key)
        return [self.ask(op, key, cost) for key, cost in zip(keys, costs, strict=True)]


def _canonical(key: Key) -> Key:
    """One form for a text and its bytes in UTF-8; bytes that are no text stay as they are."""
    raw = key_bytes(key)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
