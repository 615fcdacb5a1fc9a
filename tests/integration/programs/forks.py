"""For each limiter: asks, forks four children that ask fifty times each, and asks again. Prints how many were admitted.

With "inside" the children are made while the parent's loop is running and its connection is open.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from aiolimit import Limiter

from .common import HOWS, admitted, limiter_of

CHILDREN = 4

_, url, where = sys.argv
limiters = [limiter_of(url, how) for how in HOWS]


def start_children(limiter: Limiter) -> Callable[[], int]:
    """Make the children; the result waits for them and gives what they were admitted."""
    reader, writer = os.pipe()
    pids: list[int] = []
    for _ in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"%03d" % asyncio.run(admitted(limiter, 50)))
            if where == "inside":
                os._exit(0)  # the parent's loop would go on in this process
            sys.exit()
        pids.append(pid)

    def wait() -> int:
        statuses = [os.waitpid(pid, 0)[1] for pid in pids]
        assert statuses == [0] * CHILDREN, statuses
        written = os.read(reader, 3 * CHILDREN)
        return sum(int(written[start : start + 3]) for start in range(0, len(written), 3))

    return wait


async def ask_and_fork(limiter: Limiter) -> int:
    """The parent's own connection is in use before and after."""
    before = await admitted(limiter, 2)
    wait = start_children(limiter)
    return before + await admitted(limiter, 50) + await asyncio.to_thread(wait)


def all_admitted(limiter: Limiter) -> int:
    """Of parent and children."""
    if where == "inside":
        total = asyncio.run(ask_and_fork(limiter))
    else:
        total = asyncio.run(admitted(limiter, 2))
        total += start_children(limiter)()
    return total + asyncio.run(admitted(limiter, 50))


print([all_admitted(limiter) for limiter in limiters])  # noqa: T201
