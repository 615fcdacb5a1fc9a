"""``--url``: the live run, policy after policy, and how it agrees with memory."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from ..backends.redis import RedisBackend
from ..backends.urls import pools_of_url, redacted
from ..errors import BackendError
from .compressing import compress
from .exits import CommandError, ExitCode
from .live import run_live
from .progress import phase
from .replay import replay
from .report import Agreement, Result
from .simulate import in_memory
from .tally import percentile

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from .arguments import NamedPolicy, Settings
    from .compressing import Compressed
    from .live import LiveRun
    from .reading import Log

DEADLINE_SECONDS = 5.0
"""How long the server may take for an answer: a pause spoils the timing, and the figures say so, but ends nothing."""
_CLOCK_READINGS = 5


def live_results(settings: Settings, url: str, log: Log, errors: Console) -> list[Result]:
    """Run the log against the server, once for each policy.

    Raises:
        CommandError: When the server cannot be reached or does not decide, or the speed does not suit a policy.
    """
    runs = [compress(named.policy, log.arrivals, settings.speed) for named in settings.policies]
    return [_one(named, run, url, log, errors) for named, run in zip(settings.policies, runs, strict=True)]


def _one(named: NamedPolicy, compressed: Compressed, url: str, log: Log, errors: Console) -> Result:
    with phase(f"live under {named.text}", len(log.arrivals), errors) as shown:
        try:
            run = asyncio.run(_run(compressed, url, log, shown.advance))
        except (BackendError, RedisError, OSError) as error:  # a TimeoutError is an OSError
            what = str(error) or type(error).__name__
            raise CommandError(
                ExitCode.STORE_FAILED, f"--url {redacted(url)!r}: the server cannot decide: {what}"
            ) from error
    result = in_memory(named, log, errors, admitted=run.admitted)
    return Result(result.tally, _agreement(named, compressed, run, url, log))


async def _run(compressed: Compressed, url: str, log: Log, advance: Callable[[int], None]) -> LiveRun:
    offset = await _clock_offset(url)
    async with RedisBackend.from_url(url, deadline=DEADLINE_SECONDS) as backend:
        return await run_live(backend, offset, compressed, log.arrivals, advance)


async def _clock_offset(url: str) -> float:
    """What the server's clock is ahead of this machine's, in seconds, by the quickest of a few readings."""
    best = (float("inf"), 0.0)
    pool, _ = pools_of_url(url, 1).next(asyncio.get_running_loop())
    client: Any
    async with Redis.from_pool(pool) as client, asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(_CLOCK_READINGS):
            asked = time.time()
            seconds, microseconds = await client.time()
            answered = time.time()
            best = min(best, (answered - asked, seconds + microseconds / 1_000_000 - (asked + answered) / 2))
    return best[1]


def _agreement(named: NamedPolicy, compressed: Compressed, run: LiveRun, url: str, log: Log) -> Agreement:
    late = sorted(run.late)
    return Agreement(
        url=redacted(url),
        speed=run.speed,
        idle_skipped=(log.span_us - compressed.offsets_us[-1]) / 1_000_000,
        seconds=run.seconds,
        late_p50=percentile(late, 50) or 0.0,
        late_max=run.latest,
        memory_admitted=sum(asyncio.run(replay(named.policy, log.arrivals))),
        memory_admitted_as_arrived=sum(asyncio.run(replay(named.policy, run.as_arrived(log.arrivals)))),
    )
