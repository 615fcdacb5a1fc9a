"""Fixed window: a counter that belongs to the window it was last charged in."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from .rule import MAX_EXACT, TAKE, clock_tolerance, moved_units, unmet_units

if TYPE_CHECKING:
    from ..policies import FixedWindow
    from .rule import Answer

State: TypeAlias = tuple[int, int]
"""``(units in use, when it was written in µs)``."""


class FixedWindowRule:
    """The rule of a `FixedWindow`: windows start at multiples of ``window`` microseconds since 1970."""

    script = "fixed_window"
    __slots__ = ("limit", "params", "tolerance", "window")

    def __init__(self, policy: FixedWindow) -> None:
        self.limit = policy.limit
        self.window = round(policy.window * 1_000_000)
        self.tolerance = clock_tolerance(self.window)
        self.params = (self.limit, self.window, self.tolerance)

    def decide(self, state: State | None, now: int, op: int, cost: int) -> tuple[State | None, Answer]:
        """Answer one question, as `aiolimit.algorithms.rule` says."""
        window, limit = self.window, self.limit
        if op == TAKE and cost and state is not None:  # the common case alone: a known key, and it fits
            used, since = state
            used += cost
            start = now - now % window
            if used <= limit and start <= since <= now:
                return (used, now), (cost, limit - used, 0, start + window - now)
        at = now
        used, since = state if state is not None else (0, now)
        if since > now:
            if since - now <= self.tolerance:
                at = since
            else:
                state = (used, now)
        start = at - at % window
        if since < start:
            used = 0
        free = max(limit - used, 0)
        moved = moved_units(op, cost, free)
        if moved and (moved > 0 or state is not None):
            used = min(max(used + moved, 0), MAX_EXACT)
            state = (used, at)
            free = max(limit - used, 0)
        until_next = start + window - now
        retry = until_next if not moved and unmet_units(op, cost, free) else 0
        return state, (max(moved, 0), free, retry, until_next if used else 0)
