"""Sliding window counter: this window's units, and the last window's in proportion to their overlap.

Time within a window is counted in ``steps`` of ``tick`` microseconds: one microsecond, unless the window and the limit
are so large that ``limit · steps`` would not fit into a Lua number. All products are then exact, here and there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from .rule import MAX_EXACT, TAKE, clock_tolerance, moved_units, unmet_units

if TYPE_CHECKING:
    from ..policies import SlidingWindow
    from .rule import Answer

State: TypeAlias = tuple[int, int, int, int]
"""``(last window's units, this window's units, when it was written in µs, the window in µs then)``."""

_MAX_PRODUCT = 2**49
"""The most that ``limit · steps`` may be: a sixteenth of what is exact, so that a debt has room."""


class SlidingWindowRule:
    """The rule of a `SlidingWindow`; windows start at multiples of ``window`` microseconds since 1970."""

    script = "sliding_window"
    __slots__ = ("limit", "most", "params", "steps", "tick", "tolerance", "window")

    def __init__(self, policy: SlidingWindow) -> None:
        self.limit = policy.limit
        self.window = round(policy.window * 1_000_000)
        self.tick = -(-self.limit * self.window // _MAX_PRODUCT)
        self.steps = -(-self.window // self.tick)
        self.most = MAX_EXACT // self.steps // 2
        self.tolerance = clock_tolerance(self.window)
        self.params = (self.limit, self.window, self.tick, self.steps, self.most, self.tolerance)

    def decide(self, state: State | None, now: int, op: int, cost: int) -> tuple[State | None, Answer]:
        """Answer one question, as `aiolimit.algorithms.rule` says."""
        window, steps = self.window, self.steps
        if op == TAKE and cost and state is not None:  # the common case alone: a known key, and it fits
            previous, current, since, old_window = state
            start = now - now % window
            if start <= since <= now and old_window == window and previous <= self.most:
                room = (self.limit - current - cost) * steps - previous * (steps - (now - start) // self.tick)
                if room >= 0:
                    state = previous, current + cost, now, window
                    return state, (cost, room // steps, 0, start + 2 * window - now)
        at = now
        previous = current = 0
        since = now
        if state is not None:
            previous, current, since, old_window = state
            if old_window != window:
                previous, current = 0, _in_use(previous, current, since, old_window)
            previous, current = min(previous, self.most), min(current, self.most)
            if since > now:
                if since - now <= self.tolerance:
                    at = since
                else:
                    since = now
                    state = (previous, current, now, window)
        start = at - at % window
        if since < start:
            previous, current = current if since >= start - window else 0, 0
        left = steps - (at - start) // self.tick
        free = self._free(previous, current, left)
        moved = moved_units(op, cost, free)
        if moved and (moved > 0 or state is not None):
            kept = max(previous + min(current + moved, 0), 0)
            previous, current = kept, min(max(current + moved, 0), self.most)
            state = (previous, current, at, window)
            free = self._free(previous, current, left)
        unmet = 0 if moved else unmet_units(op, cost, free)
        retry = self._fits_at(previous, current, start, unmet) - now if unmet else 0
        ends = start + 2 * window if current else start + window if previous else now
        return state, (max(moved, 0), free, retry, ends - now)

    def _free(self, previous: int, current: int, left: int) -> int:
        return max((self.limit - current) * self.steps - previous * left, 0) // self.steps

    def _fits_at(self, previous: int, current: int, start: int, cost: int) -> int:
        """The first moment at which ``cost`` more units fit."""
        room = self.limit - cost - current
        if room < 0:
            start, previous, room = start + self.window, current, self.limit - cost
        overlap = room * self.steps // previous
        return start + min(max(self.steps - overlap, 0) * self.tick, self.window)


def _in_use(previous: int, current: int, at: int, window: int) -> int:
    """The units in use at the moment ``at``, rounded up; in floats, as Lua does it."""
    return math.ceil(previous * ((window - at % window) / window)) + current
