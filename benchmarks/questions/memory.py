"""How many decisions a second in this process, by policy?"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from aiolimit import FixedWindow, Limiter, MemoryBackend, SlidingLog, SlidingWindow, TokenBucket

from ..compare.peers import require
from ..load import PLENTY, run_on_uvloop, user_keys
from ..runner import Goal, SkippedError, check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiolimit.policies import Policy

    from ..runner import Bench, Table

HOUR = 3600.0
TOKENS = "aiolimit token bucket"
WINDOW = "aiolimit fixed window"
CASES: dict[str, Policy] = {
    TOKENS: TokenBucket(rate=1000, per=HOUR, burst=PLENTY),
    "aiolimit token bucket, fresh before its next visit": TokenBucket(rate=PLENTY, per=1.0),
    WINDOW: FixedWindow(PLENTY, HOUR),
    "aiolimit sliding window": SlidingWindow(PLENTY, HOUR),
    "aiolimit sliding log": SlidingLog(1000, HOUR),
}
REFUSED = "aiolimit token bucket, refused"
PEER = "limits fixed window"


def run(bench: Bench) -> Iterator[Table]:
    """One caller; each question is awaited. Time is that of the processor, which is all there is to it."""
    rounds = bench.size(3, 2)
    cases: dict[str, Callable[[], float]] = {
        name: partial(_limiter_per_second, policy, rounds, admit=True) for name, policy in CASES.items()
    }
    cases[REFUSED] = partial(_limiter_per_second, TokenBucket(rate=1, per=HOUR * 24), rounds, admit=False)
    goals: tuple[Goal, ...] = (Goal(TOKENS, least=1_000_000),)
    notes = []
    try:
        require("limits", "limits")
        cases[PEER] = partial(_limits_per_second, rounds)
        goals += (Goal(TOKENS, least=2.5, versus=PEER), Goal(WINDOW, least=2.5, versus=PEER))
    except SkippedError as reason:
        notes.append(f"SKIPPED {PEER}: {reason}")
    yardstick = PEER if PEER in cases else None
    table = bench.measure(
        "in memory, 10,000 keys",
        "decisions/s",
        cases,
        yardstick=yardstick,
        goals=goals,
        repeats=bench.repeats * 3,  # short ones: a neighbour then disturbs few of them
    )
    table.notes += notes
    yield table


def _limiter_per_second(policy: Policy, rounds: int, *, admit: bool) -> float:
    return run_on_uvloop(_limiter_rounds(Limiter(policy, MemoryBackend()), rounds, admit=admit))


async def _limiter_rounds(limiter: Limiter, rounds: int, *, admit: bool) -> float:
    keys = user_keys()
    for key in keys:
        decision = await limiter.try_acquire(key)
        check(decision.allowed and decision.source == "memory", f"the first decision was {decision}")
    try_acquire = limiter.try_acquire
    admitted = 0
    started = time.process_time()
    for _ in range(rounds):
        for key in keys:
            if await try_acquire(key):
                admitted += 1
    elapsed = time.process_time() - started
    expected = rounds * len(keys) if admit else 0
    check(admitted == expected, f"{rounds * len(keys)} asked, {expected} are right, {admitted} admitted")
    return rounds * len(keys) / elapsed


def _limits_per_second(rounds: int) -> float:
    from limits import RateLimitItemPerHour  # noqa: PLC0415  (an optional peer)
    from limits.aio.storage import MemoryStorage  # noqa: PLC0415
    from limits.aio.strategies import FixedWindowRateLimiter  # noqa: PLC0415

    item = RateLimitItemPerHour(PLENTY)

    async def main() -> float:
        strategy = FixedWindowRateLimiter(MemoryStorage())

        async def ask(key: str) -> bool:
            return await strategy.hit(item, key)

        return await _peer_rounds(ask, strategy.hit, item, rounds)

    return run_on_uvloop(main())


async def _peer_rounds(
    ask: Callable[[str], Awaitable[bool]], hit: Callable[..., Awaitable[bool]], item: object, rounds: int
) -> float:
    keys = user_keys()
    for key in keys:
        check(await ask(key), "the peer refused its first question")
    admitted = 0
    started = time.process_time()
    for _ in range(rounds):
        for key in keys:
            if await hit(item, key):
                admitted += 1
    elapsed = time.process_time() - started
    check(admitted == rounds * len(keys), f"{rounds * len(keys)} asked, {admitted} admitted by the peer")
    return rounds * len(keys) / elapsed
