"""Replaying a log in memory, on the log's own clock."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..backends.memory import MemoryBackend
from ..limiter import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..policies import Policy
    from .reading import Arrival

_STEP = 1000


class _LogClock:
    """A clock that shows whatever it was set to."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us


def _ignore(done: int) -> None:
    del done


async def replay(policy: Policy, arrivals: Sequence[Arrival], advance: Callable[[int], None] = _ignore) -> list[bool]:
    """Ask once for every arrival, at its time. Gives who was admitted.

    Args:
        policy: The limit.
        arrivals: In order of time.
        advance: Called now and then with how many more are done.
    """
    clock = _LogClock()
    limiter = _limiter(policy, clock, arrivals)
    admitted: list[bool] = []
    for at_us, key, cost in arrivals:
        clock.now_us = at_us
        admitted.append(cost <= policy.limit and (await limiter.try_acquire(key, cost)).allowed)
        if not len(admitted) % _STEP:
            advance(_STEP)
    advance(len(admitted) % _STEP)
    return admitted


async def queue(policy: Policy, arrivals: Sequence[Arrival], advance: Callable[[int], None] = _ignore) -> list[float]:
    """What each arrival would have waited, in seconds, had all of them waited in one queue per key, first come first
    served: it starts when those before it have started and its own cost fits. Waiting ones use up the limit too.

    An arrival that the policy can never admit does not join the queue and is left out.
    """
    clock = _LogClock()
    limiter = _limiter(policy, clock, arrivals)
    of_key: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        if arrival.cost <= policy.limit:
            of_key[arrival.key].append(arrival)
    waits: list[float] = []
    for key, line in of_key.items():
        start_us = 0
        for at_us, _, cost in line:
            clock.now_us = max(at_us, start_us)
            while not (decision := await limiter.try_acquire(key, cost)).allowed:
                assert decision.retry_after is not None
                clock.now_us += max(round(decision.retry_after * 1_000_000), 1)
            start_us = clock.now_us
            waits.append((start_us - at_us) / 1_000_000)
        advance(len(line))
    return waits


def _limiter(policy: Policy, clock: _LogClock, arrivals: Sequence[Arrival]) -> Limiter:
    # Room for every key there can be, so that none has to leave; there are no more keys than arrivals.
    return Limiter(policy, MemoryBackend(clock=clock, max_keys=max(len(arrivals), 1)), name="simulate")
