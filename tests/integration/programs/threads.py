"""Uses each limiter in two threads, each with an event loop. Prints how many were admitted."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from aiolimit import Limiter

from .common import HOWS, admitted, limiter_of

_, url = sys.argv
limiters = [limiter_of(url, how) for how in HOWS]
together = threading.Barrier(2)


def ask(limiter: Limiter) -> int:
    """Twice, so that both threads begin with the limiter as the other has left it."""
    together.wait()
    return asyncio.run(admitted(limiter, 50)) + asyncio.run(admitted(limiter, 50))


with ThreadPoolExecutor(2) as threads:
    print([sum(threads.map(ask, [limiter] * 2)) for limiter in limiters])  # noqa: T201
