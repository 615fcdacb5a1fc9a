"""How much memory does a key take on the server?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiolimit import FixedWindow, SlidingLog, SlidingWindow

from ..compare.sorted_set import fill
from ..load import PLENTY, POLICY, redis_limiter, run_on_uvloop
from ..runner import Goal, Table, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiolimit.policies import Policy

    from ..runner import Bench
    from ..server import Server

DAY = 86_400.0
KEY = "user:1234"
BATCH = 500
LOGS = {100: 1_200, 1_000: 17_000, 100_000: 1_400_000}
"""The most bytes for a log of so many units."""
POLICIES: dict[str, Policy] = {
    "token bucket": POLICY,
    "fixed window": FixedWindow(PLENTY, DAY),
    "sliding window": SlidingWindow(PLENTY, DAY),
}


def run(bench: Bench) -> Iterator[Table]:
    """MEMORY USAGE of the key ``user:1234``. The same every time, so measured once."""
    rows: dict[str, list[float]] = {}
    goals: list[Goal] = []
    with bench.server() as server:
        for name, policy in POLICIES.items():
            rows[name] = [run_on_uvloop(_bytes_after(server, policy, 10))]
        for units, most in LOGS.items():
            name = f"sliding log, {units:,} units"
            rows[name] = [run_on_uvloop(_bytes_after(server, SlidingLog(units, DAY), units))]
            goals.append(Goal(name, most=most))
            server.flush()
            fill(server.admin, "log", units)
            rows[f"sorted set, {units:,} units"] = [float(server.admin.memory_usage("log", samples=0))]
    yield Table("memory of a key", "bytes", rows, goals=tuple(goals))


async def _bytes_after(server: Server, policy: Policy, units: int) -> float:
    """Memory of a key that was charged unit by unit."""
    server.flush()
    async with redis_limiter(server.url, policy) as limiter:
        for start in range(0, units, BATCH):
            decisions = await limiter.try_acquire_many([KEY] * min(BATCH, units - start))
            check(all(each.allowed and each.source == "redis" for each in decisions), "a unit was not admitted")
        if policy.limit == units:
            check(not await limiter.try_acquire(KEY), "the log is not full")
        await limiter.backend.aclose()
    keys = server.admin.keys("*")
    check(len(keys) == 1, f"one key is right, there are {len(keys)}")
    return float(server.admin.memory_usage(keys[0], samples=0))
