"""Decisions in this process: the embedded default."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from ..algorithms import PEEK, RESET, compile_policy
from ..keys import key_bytes
from .base import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..algorithms import Answer, Rule
    from ..decision import Source
    from ..errors import BackendError
    from ..keys import Key
    from ..policies import Policy

_log = logging.getLogger(__name__)
_CLEARED_AT_ONCE = 4
_CANDIDATES = 16
_LINGER_US = 1_000_000
"""How long a fresh key stays at least: a key that is used again and again need not leave and enter each time."""


class _Space:
    """The keys of one limiter's policy."""

    __slots__ = ("rules", "states")

    def __init__(self) -> None:
        self.rules: dict[tuple[int, ...], Rule] = {}  # several, while limiters of one name have different numbers
        self.states: dict[Key, Any] = {}


class MemoryBackend:
    """Decides in this process, by the same rules as the scripts. Keys are known to this process alone.

    May be shared by threads and event loops. Keys whose state carries no information any more leave as other decisions
    are taken, a few at a time; there is no task and no timer.

    Args:
        clock: A callable that gives integer microseconds. `FixedWindow` and `SlidingWindow` align to its multiples; the
            default counts from 1970 at the pace of the monotonic clock.
        max_keys: How many keys are kept. When a new one would be one too many, the key nearest to fresh leaves, but
        never
            one that has used up its limit: if only such keys can be found, the new key is refused until one is fresh. A
            client with units left that is refused for more of them can be freed.

    Raises:
        ValueError: When ``max_keys`` is not a whole number of at least 1.
        TypeError: When ``clock`` cannot be called.
    """

    source: Source = "memory"

    def __init__(self, *, clock: Callable[[], int] | None = None, max_keys: int = 1_000_000) -> None:
        if isinstance(max_keys, bool) or not isinstance(max_keys, int) or max_keys < 1:
            raise ValueError(f"max_keys must be a whole number, 1 or more, not {max_keys!r}")
        if clock is not None and not callable(clock):
            raise TypeError(f"clock must be a callable that gives integer microseconds, not {clock!r}")
        self.max_keys = max_keys
        self._clock = clock
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
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

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> Place:
        """Prepare to decide by this policy for the limiter of this name. Limiters of one name share their keys."""
        del group  # all keys are in one place already
        rule = compile_policy(policy)
        with self._lock:
            space = self._spaces.setdefault((name, policy.tag), _Space())
            space.rules[rule.params] = rule
        return Place(partial(self._ask, space, rule), partial(self._ask_many, space, rule), _hear_nothing)

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

    def _ask(  # noqa: PLR0917  (positional, because a million calls a second are)
        self, space: _Space, rule: Rule, op: int, key: Key, cost: int, deadline: float | None = None
    ) -> Answer:
        del deadline  # it answers at once
        if type(key) is not str or not key or not key.isascii():
            key = _canonical(key)
        states = space.states
        with self._lock:
            now = (time.monotonic_ns() + self._epoch_ns) // 1000 if self._clock is None else self._clock()
            if self._fresh and self._fresh[0][0] <= now:
                self._clear(now)
            state = states.get(key)
            if op == RESET:
                if state is not None:
                    states[key] = None  # the heap finds the key empty when its time comes
                return 0, rule.limit, 0, 0
            new, answer = rule.decide(state, now, op, cost)
            if new is not state:
                if state is None:
                    return self._enter(space, key, new, answer, now)
                states[key] = new
            return answer

    def _enter(self, space: _Space, key: Key, state: Any, answer: Answer, now: int) -> Answer:
        """Keep the state of a new key, or refuse it where there is no room."""
        if key not in space.states:
            wait_us = self._make_room(now) if len(self._fresh) >= self.max_keys else 0
            if wait_us:
                return 0, 0, wait_us, wait_us
            self._entered += 1
            heappush(self._fresh, (now + max(answer[3], _LINGER_US), self._entered, space, key))
        space.states[key] = state
        return answer

    def _ask_many(self, space: _Space, rule: Rule, op: int, keys: Sequence[Key], costs: Sequence[int]) -> list[Answer]:
        return [self._ask(space, rule, op, key, cost) for key, cost in zip(keys, costs, strict=True)]

    def _clear(self, now: int, most: int = _CLEARED_AT_ONCE) -> None:
        """Drop up to ``most`` keys that are fresh again."""
        heap = self._fresh
        while most and heap and heap[0][0] <= now:
            most -= 1
            _, entered, space, key = heap[0]
            reset_us = self._reset_us(space, key, now)
            if reset_us:
                heapreplace(heap, (now + max(reset_us, _LINGER_US), entered, space, key))
            else:
                heappop(heap)
                space.states.pop(key, None)

    def _reset_us(self, space: _Space, key: Key, now: int) -> int:
        state = space.states.get(key)
        return max(rule.decide(state, now, PEEK, 0)[1][3] for rule in space.rules.values())

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
            state = space.states.get(key)
            found = all(rule.decide(state, now, PEEK, 1)[1][2] == 0 for rule in space.rules.values())
            if found:
                del space.states[key]
            else:
                kept.append((now + self._reset_us(space, key, now), *entry[1:]))
        for entry in kept:
            heappush(self._fresh, entry)
        if not self._warned:
            self._warned = True
            _log.warning(
                "the memory backend is full: %d keys; raise max_keys, or limit fewer identities", self.max_keys
            )
        return 0 if found else max(self._fresh[0][0] - now, 1)


def _hear_nothing(source: Source, decisions: int, error: BackendError) -> None:
    """There is nothing to hear: this backend always answers."""


def _canonical(key: Key) -> Key:
    """One form for a text and its bytes in UTF-8; bytes that are no text stay as they are."""
    raw = key_bytes(key)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
