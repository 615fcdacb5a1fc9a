"""A process of its own that asks: reads orders, a JSON object a line, and answers each with one number.

An order is {"url", "policy", "key", "callers"}; the number is how many of so many simultaneous callers were admitted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiolimit import Limiter, RedisBackend


async def admitted(order: dict[str, Any]) -> int:
    """How many callers of one limiter in this process are admitted by the server."""
    async with RedisBackend.from_url(order["url"], deadline=30) as backend:
        limiter = Limiter(order["policy"], backend, failure="closed")
        decisions = await asyncio.gather(*(limiter.try_acquire(order["key"]) for _ in range(order["callers"])))
        assert {decision.source for decision in decisions} == {"redis"}
        return sum(map(bool, decisions))


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201  (this is how it answers)
    for line in sys.stdin:
        print(asyncio.run(admitted(json.loads(line))), flush=True)  # noqa: T201
