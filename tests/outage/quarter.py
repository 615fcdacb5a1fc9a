"""One process of four: asks at an even pace under `failure="local"`, and tells when it was admitted, and by whom.

Its argument is a JSON object {"url", "policy", "seconds", "every"}; it starts when it reads a line, and answers with a
list of [time, source], one for each admission.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from aiolimit import CircuitBreaker, Limiter, RedisBackend


async def run(order: dict[str, Any]) -> list[tuple[float, str]]:
    """Ask for so many seconds."""
    admitted: list[tuple[float, str]] = []
    breaker = CircuitBreaker(open_for=0.1, max_open_for=0.1)
    async with RedisBackend.from_url(order["url"], deadline=0.05, breaker=breaker, listeners=[]) as backend:
        limiter = Limiter(order["policy"], backend, failure="local", share=0.25)

        async def ask() -> None:
            decision = await limiter.try_acquire("k")
            if decision.allowed:
                admitted.append((time.time(), decision.source))

        loop = asyncio.get_running_loop()
        start = due = loop.time()
        asking = set()
        while due - start < order["seconds"]:
            asking.add(asyncio.create_task(ask()))
            due += order["every"]
            await asyncio.sleep(max(due - loop.time(), 0))
        await asyncio.gather(*asking)
    return admitted


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201  (this is how it answers)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))), flush=True)  # noqa: T201
