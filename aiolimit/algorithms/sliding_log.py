"""Sliding log: the times of the newest ``limit`` units, oldest first.

More is never needed. ``cost`` units fit when the ``cost``-th oldest of a full log has aged out, so a unit charged
beyond the limit may overwrite the oldest one. How many were overwritten while they still counted is kept in
``excess``, for refunds only: they are older than all that is left, so they have aged out when the oldest of those has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

from .rule import MAX_EXACT, TAKE, clock_tolerance, moved_units, unmet_units

if TYPE_CHECKING:
    from ..policies import SlidingLog
    from .rule import Answer


class Log:
    """The state of one key. Changed in place when units are charged or given back, and by a clock set back."""

    __slots__ = ("excess", "times")

    def __init__(self, times: deque[int] | None = None, excess: int = 0) -> None:
        self.times = deque[int]() if times is None else times
        self.excess = excess

    def __repr__(self) -> str:
        return f"Log({list(self.times)}, excess={self.excess})"

    def charge(self, units: int, at: int, limit: int) -> None:
        """Add units, over the oldest where there is no room."""
        self.excess = min(self.excess + max(len(self.times) + units - limit, 0), MAX_EXACT)
        self.times.extend(repeat(at, min(units, limit)))
        self.drop_oldest(len(self.times) - limit)

    def give_back(self, units: int) -> None:
        """Take units away, the oldest first, so that what stays counts at least as long as it should."""
        from_excess = min(units, self.excess)
        self.excess -= from_excess
        self.drop_oldest(min(units - from_excess, len(self.times)))

    def drop_oldest(self, units: int) -> None:
        """Forget so many times."""
        for _ in range(units):
            self.times.popleft()


class SlidingLogRule:
    """The rule of a `SlidingLog`: a unit counts while it lies in ``(now - window, now]``."""

    script = "sliding_log"
    __slots__ = ("limit", "params", "tolerance", "window")

    def __init__(self, policy: SlidingLog) -> None:
        self.limit = policy.limit
        self.window = round(policy.window * 1_000_000)
        self.tolerance = clock_tolerance(self.window)
        self.params = (self.limit, self.window, self.tolerance)

    def decide(self, state: Log | None, now: int, op: int, cost: int) -> tuple[Log | None, Answer]:
        """Answer one question, as `aiolimit.algorithms.rule` says."""
        if op == TAKE and cost and state is not None and state.times:  # the common case alone: none aged, and it fits
            times = state.times
            free = self.limit - len(times) - state.excess - cost
            if free >= 0 and times[0] > now - self.window and times[-1] <= now:
                times.extend(repeat(now, cost))
                return state, (cost, free, 0, self.window)
        at = now
        log = state if state is not None else Log()
        times = log.times
        if times and times[-1] > now:
            if times[-1] - now <= self.tolerance:
                at = times[-1]
            else:
                log.times = times = deque(min(time, now) for time in times)
        over = max(len(times) - self.limit, 0)  # under a limit that was lowered
        oldest = over
        if over < len(times) and times[over] <= at - self.window:  # else a search would walk to the middle of the log
            oldest = bisect_right(times, at - self.window, over)
        used = len(times) - oldest
        excess = log.excess + over if oldest == over else 0
        moved = moved_units(op, cost, max(self.limit - used - excess, 0))
        if moved and (moved > 0 or state is not None):
            log.drop_oldest(oldest)
            log.excess = excess
            if moved > 0:
                log.charge(moved, at, self.limit)
            else:
                log.give_back(-moved)
            state, oldest, used, excess = log, 0, len(times), log.excess
        free = max(self.limit - used - excess, 0)
        unmet = 0 if moved else unmet_units(op, cost, free)
        must_age = max(unmet - (self.limit - used), 1)  # and the excess with the first of them
        retry = times[oldest + must_age - 1] + self.window - now if unmet else 0
        return state, (max(moved, 0), free, retry, times[-1] + self.window - now if used else 0)
