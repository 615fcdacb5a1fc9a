"""Uses each limiter in three event loops, one after another, and closes nothing. Prints how many were admitted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from aiolimit import Limiter

from .common import HOWS, admitted, limiter_of

_, url, loop = sys.argv
limiters = [limiter_of(url, how) for how in HOWS]


async def ask(limiter: Limiter) -> int:
    """Ask, and see that what was started is known to the loop."""
    count = await admitted(limiter, 30)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert {task.get_name() for task in others} <= {"aiolimit lane"}
    return count


run: Callable[[Coroutine[Any, Any, int]], int] = uvloop.run if loop == "uvloop" else asyncio.run
print([sum(run(ask(limiter)) for _ in range(3)) for limiter in limiters])  # noqa: T201
