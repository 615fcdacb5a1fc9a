"""How many decisions a second for one caller who has five hundred questions at a time?"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ..compare.bare import hash_call, our_call, pooled
from ..load import charged_units, redis_limiter, run_on_uvloop, user_keys
from ..runner import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..compare.bare import Call
    from ..runner import Bench, Table
    from ..server import Server

BATCH = 500
HASH = "redis-py pipeline, usual script"
SAME = "redis-py pipeline, our script"
OURS = "try_acquire_many"


def run(bench: Bench) -> Iterator[Table]:
    """A batch after the other, each of 500 keys."""
    batches, slow = bench.size(100, 40), bench.size(20, 10)
    with bench.server() as server:
        yield bench.measure(
            f"{BATCH} questions by hand",
            "decisions/s",
            {
                HASH: partial(_pipeline, server, hash_call(server), slow),
                SAME: partial(_pipeline, server, our_call(server), slow),
                OURS: partial(_many, server, batches),
            },
            yardstick=SAME,
        )


def _pipeline(server: Server, call: Call, batches: int) -> float:
    server.flush()
    return run_on_uvloop(_pipelined(server, call, batches))


async def _pipelined(server: Server, call: Call, batches: int) -> float:
    sha, prefix, arguments = call
    keys = user_keys()
    admitted = 0
    async with pooled(server) as client:
        started = time.perf_counter()
        for batch in range(batches):
            pipeline = client.pipeline(transaction=False)
            for number in range(BATCH):
                pipeline.evalsha(sha, 1, prefix + keys[(batch * BATCH + number) % len(keys)], *arguments)
            admitted += sum(reply[0] for reply in await pipeline.execute())
        elapsed = time.perf_counter() - started
    check(admitted == batches * BATCH, f"{batches * BATCH} asked, {admitted} admitted")
    return batches * BATCH / elapsed


def _many(server: Server, batches: int) -> float:
    server.flush()
    return run_on_uvloop(_many_per_second(server, batches))


async def _many_per_second(server: Server, batches: int) -> float:
    keys = user_keys()
    chunks = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
    admitted = 0
    async with redis_limiter(server.url) as limiter:
        started = time.perf_counter()
        for batch in range(batches):
            decisions = await limiter.try_acquire_many(chunks[batch % len(chunks)])
            admitted += sum(decision.allowed and decision.source == "redis" for decision in decisions)
        elapsed = time.perf_counter() - started
        check(admitted == batches * BATCH, f"{batches * BATCH} asked, {admitted} admitted by redis")
        charged = await charged_units(limiter, keys)
        check(charged == admitted, f"{admitted} admitted, but {charged} charged")
        await limiter.backend.aclose()
    return batches * BATCH / elapsed
