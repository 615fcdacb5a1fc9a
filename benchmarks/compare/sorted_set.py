"""The usual sliding log: a sorted set with a member for each unit."""

from __future__ import annotations

import time
from typing import Any

CHUNK = 1000


def fill(client: Any, key: str, units: int) -> None:
    """Put this many units of the last moment there; members are the time and a number, so that none collide."""
    pipeline = client.pipeline(transaction=False)
    for start in range(0, units, CHUNK):
        now_us = time.time_ns() // 1000
        members = {f"{now_us}-{number:06d}": now_us for number in range(start, min(start + CHUNK, units))}
        pipeline.zadd(key, members)
        if start % (50 * CHUNK) == 0:
            pipeline.execute()
    pipeline.expire(key, 86_400)
    pipeline.execute()
