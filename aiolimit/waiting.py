"""Waiting for one's turn: callers of one key go in the order in which they came."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .errors import RateLimitExceeded
from .keys import key_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from .arguments import Failure
    from .decision import Decision
    from .keys import Key


class _Turn:
    """Who may ask for one key: one at a time, first come, first served."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0


class Line:
    """The callers that wait, by event loop and key. Holds nothing when nobody does."""

    def __init__(self) -> None:
        self._turns: dict[tuple[asyncio.AbstractEventLoop, bytes], _Turn] = {}

    def __len__(self) -> int:
        """For how many keys somebody waits."""
        return len(self._turns)

    @asynccontextmanager
    async def turn(self, key: bytes, deadline: float | None) -> AsyncGenerator[None, None]:
        """Come to the head of the line for this key; raises TimeoutError at the deadline, in the loop's seconds."""
        place = asyncio.get_running_loop(), key
        turn = self._turns.get(place)
        if turn is None:
            turn = self._turns[place] = _Turn()
        turn.callers += 1
        try:
            if turn.callers > 1:
                async with asyncio.timeout_at(deadline):
                    await turn.lock.acquire()
            else:
                await turn.lock.acquire()
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.callers -= 1
            if not turn.callers:
                del self._turns[place]


class Acquisition:
    """What `Limiter.acquire` gives: await it, or enter it with ``async with``. Good for one use.

    Args:
        line: Who waits.
        ask: Decides now, for a key, a cost and ``failure``.
        refusal: Makes the refusal of one whose turn did not come, from a key, a cost and seconds to wait.
        key: As for `Limiter.acquire`, and so are the rest.
        cost: See there.
        timeout: See there.
        failure: See there.
    """

    __slots__ = ("_ask", "_cost", "_failure", "_key", "_line", "_place", "_refusal", "_timeout")

    def __init__(
        self,
        line: Line,
        ask: Callable[..., Coroutine[None, None, Decision]],
        refusal: Callable[[Key, int, float], Decision],
        *,
        key: Key,
        cost: int,
        timeout: float | None,
        failure: Failure | None,
    ) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
            raise TypeError(f"timeout must be seconds or None, not {timeout!r} ({type(timeout).__name__})")
        if timeout is not None and not timeout >= 0:  # so that NaN is refused, too
            raise ValueError(f"timeout must be 0 or more seconds, or None to wait as long as it takes, not {timeout!r}")
        self._line = line
        self._ask = ask
        self._refusal = refusal
        self._key = key
        self._place = key_bytes(key)
        self._cost = cost
        self._failure: Failure | None = failure
        self._timeout = None if timeout == math.inf else timeout

    def __bool__(self) -> bool:
        """Refuse: it is not the decision yet."""
        raise TypeError("await limiter.acquire(...), or enter it with 'async with', before you ask what it says")

    def __await__(self) -> Generator[None, None, Decision]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Decision:
        return await self._acquire()

    async def __aexit__(self, *error: object) -> None:
        """Nothing to give back: what a rate limit charged stays charged."""

    async def _acquire(self) -> Decision:
        loop = asyncio.get_running_loop()
        deadline = None if self._timeout is None else loop.time() + self._timeout
        try:
            async with self._line.turn(self._place, deadline):
                while True:
                    # With no time to wait there still is time to ask.
                    async with asyncio.timeout_at(deadline if self._timeout else None):
                        decision = await self._ask(self._key, self._cost, failure=self._failure)
                    if decision.allowed:
                        return decision
                    wait = decision.retry_after
                    if wait is None or decision.source == "fail_closed":
                        raise RateLimitExceeded("refused, because the store does not answer", decision)
                    if deadline is not None and loop.time() + wait > deadline:
                        raise RateLimitExceeded(f"would have to wait {wait:.3f} s, past its timeout", decision)
                    await asyncio.sleep(wait)
        except TimeoutError:
            timeout = self._timeout or 0.0
            decision = self._refusal(self._key, self._cost, timeout)
            raise RateLimitExceeded(f"its turn did not come within {timeout} s", decision) from None
