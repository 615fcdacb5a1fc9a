"""How much of what the server can do at all is reached?"""

from __future__ import annotations

import math
import shutil
import subprocess
from functools import partial
from typing import TYPE_CHECKING

from aiolimit import RedisBackend

from ..compare.bare import our_call
from ..load import KEYS, limiter_pace, pace_of, redis_limiter, run_on_uvloop
from ..runner import Goal, SkippedError, check
from ..server import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runner import Bench, Table
    from ..server import Server

CALLERS = 1000
CONNECTIONS = 4
OURS = "aiolimit, 1,000 callers"
LEAST = 0.6


def run(bench: Bench) -> Iterator[Table]:
    """The same script over the same number of keys, called as fast as a C program can, in batches of the same size."""
    program = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if program is None:
        raise SkippedError("neither redis-benchmark nor valkey-benchmark is on PATH")
    questions = bench.size(60_000, 20_000)
    with bench.server() as server:
        batch = round(run_on_uvloop(_keys_per_call(server.url)))
        ceiling = f"redis-benchmark, {batch} keys a call, {CONNECTIONS} connections"
        calls = math.ceil(bench.size(100_000, 40_000) / batch)
        yield bench.measure(
            "the server's ceiling",
            "decisions/s",
            {
                ceiling: partial(_ceiling, server, program, batch, calls),
                OURS: partial(_ours, server, questions),
            },
            yardstick=ceiling,
            goals=(Goal(OURS, least=LEAST, versus=ceiling),),
        )


async def _keys_per_call(url: str) -> float:
    async with redis_limiter(url) as limiter:
        await pace_of(limiter.try_acquire, CALLERS, CALLERS * 10)
        backend = limiter.backend
        assert isinstance(backend, RedisBackend)
        await backend.aclose()
        return backend.stats.decisions / backend.stats.calls


def _ours(server: Server, questions: int) -> float:
    server.flush()
    return run_on_uvloop(limiter_pace(server.url, CALLERS, questions)).per_second


def _ceiling(server: Server, program: str, batch: int, calls: int) -> float:
    server.flush()
    call = our_call(server)
    server.admin.config_resetstat()
    key = f"{call.prefix}user:__rand_int__"
    where = ["-h", HOST, "-p", str(server.port), "-c", str(CONNECTIONS), "-n", str(calls), "-r", str(KEYS), "--csv"]
    words = ["EVALSHA", call.sha, str(batch), *[key] * batch, *map(str, call.arguments)]
    done = subprocess.run([program, *where, *words], check=True, capture_output=True, text=True)
    stats = server.admin.info("commandstats")["cmdstat_evalsha"]
    check(stats["calls"] == calls and not stats["failed_calls"], f"{calls} calls, the server counts {stats}")
    # Below the headings "test","rps", and six more: the test's name is the whole command, so count from the end.
    calls_per_second = done.stdout.splitlines()[1].rsplit(",", 7)[1].strip('"')
    return float(calls_per_second) * batch
