"""Replaying a log against a real server, with time compressed.

At a speed of 600 a log of 100 minutes runs in ten seconds: its arrivals come, and the policy's periods pass, 600 times
as fast (`aiolimit.cli.compressing`). The server decides on its own clock, so two things have to be right here: each
arrival is sent at its moment, and where windows start at multiples of their length since 1970, the run starts at the
moment that lies in the server's compressed window where the first arrival lay in its own.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BackendUnavailable
from ..limiter import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.redis import RedisBackend
    from .compressing import Compressed
    from .reading import Arrival

MAX_PENDING = 1000
"""How many arrivals may be on their way to the server at once."""
_LEAD_SECONDS = 0.05
_SPIN_SECONDS = 0.002
"""A timer of the event loop is right to about a millisecond; the rest is waited for in turns of the loop."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What came of it: who was admitted, and when each was decided, as the client saw it."""

    speed: float
    seconds: float
    admitted: list[bool]
    late: list[float]
    """How long after its moment each arrival was decided, in seconds: halfway between question and answer."""
    latest: float
    """The longest time from an arrival's moment to its answer, in seconds."""

    def as_arrived(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """The arrivals at the times at which they were really decided, on the log's clock, in that order."""
        moved = [
            each._replace(at_us=each.at_us + round(late * self.speed * 1_000_000))
            for each, late in zip(arrivals, self.late, strict=True)
        ]
        return sorted(moved, key=lambda each: each.at_us)


async def run_live(
    backend: RedisBackend,
    clock_offset: float,
    compressed: Compressed,
    arrivals: Sequence[Arrival],
    advance: Callable[[int], None],
) -> LiveRun:
    """Send every arrival at its moment, and gather the answers.

    Args:
        backend: Where to ask.
        clock_offset: What the server's clock is ahead of ``time.time()``, in seconds.
        compressed: The policy.
        arrivals: In order of time; at least one.
        advance: Called with how many more have been sent.

    Raises:
        BackendError: When the server does not decide.
    """
    # A name of its own, so that no run sees what another has left.
    limiter = Limiter(compressed.policy, backend, name=f"simulate-{secrets.token_hex(8)}")
    run = _Run(limiter, compressed, arrivals)
    await asyncio.sleep(run.align(clock_offset) - _SPIN_SECONDS)
    await run.send_all(advance)
    return run.result()


class _Run:
    def __init__(self, limiter: Limiter, compressed: Compressed, arrivals: Sequence[Arrival]) -> None:
        self._limiter = limiter
        self._compressed = compressed
        self._arrivals = arrivals
        self._limit = compressed.policy.limit
        self._start = 0.0
        self._moments: list[float] = []
        self._pending = 0
        self._admitted = [False] * len(arrivals)
        self._sent = [0.0] * len(arrivals)
        self._answered = [0.0] * len(arrivals)

    def align(self, clock_offset: float) -> float:
        """Choose the moment of the first arrival. Gives how long until then, in seconds."""
        wait = _LEAD_SECONDS
        window_us = self._compressed.aligned_us
        if window_us is not None:
            soonest_us = round((time.time() + clock_offset + wait) * 1_000_000)
            wait += (self._compressed.phase_us - soonest_us) % window_us / 1_000_000
        self._start = time.perf_counter() + wait
        pace = 1 / self._compressed.speed / 1_000_000
        self._moments = [self._start + offset_us * pace for offset_us in self._compressed.offsets_us]
        return wait

    async def send_all(self, advance: Callable[[int], None]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for index, (moment, arrival) in enumerate(zip(self._moments, self._arrivals, strict=True)):
                    await self._until(moment)
                    self._pending += 1
                    tasks.create_task(self._ask(index, arrival))
                    advance(1)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _until(self, moment: float) -> None:
        ahead = moment - time.perf_counter()
        if ahead > _SPIN_SECONDS:
            await asyncio.sleep(ahead - _SPIN_SECONDS)
        while time.perf_counter() < moment or self._pending >= MAX_PENDING:  # noqa: ASYNC110 a timer is too coarse
            await asyncio.sleep(0)

    async def _ask(self, index: int, arrival: Arrival) -> None:
        self._sent[index] = time.perf_counter()
        if arrival.cost <= self._limit:
            decision = await self._limiter.try_acquire(arrival.key, arrival.cost)
            if decision.source != "redis":
                raise BackendUnavailable("the connection was lost in the middle of the run, or an answer took too long")
            self._admitted[index] = decision.allowed
        self._answered[index] = time.perf_counter()
        self._pending -= 1

    def result(self) -> LiveRun:
        times = list(zip(self._moments, self._sent, self._answered, strict=True))
        return LiveRun(
            speed=self._compressed.speed,
            seconds=max(self._answered) - self._start,
            admitted=self._admitted,
            late=[(sent + answered) / 2 - moment for moment, sent, answered in times],
            latest=max(answered - moment for moment, _, answered in times),
        )
