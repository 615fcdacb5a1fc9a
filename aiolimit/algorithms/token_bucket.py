"""Token bucket: a level of units in use that drains steadily.

The level is counted in *ticks*, so small that draining needs no fractions: a unit is ``unit`` ticks, and ``gain`` ticks
drain every ``span`` microseconds. At 3 units a second a unit is 1,000,000 ticks, of which 3 drain each microsecond:
exact, however often anyone looks. Where the exact numbers would not fit into a Lua number they are rounded to the
slower side, by less than one part in 100,000.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from .rule import MAX_EXACT, MAX_WAIT_US, TAKE, clock_tolerance, moved_units, unmet_units

if TYPE_CHECKING:
    from fractions import Fraction

    from ..policies import TokenBucket
    from .rule import Answer

State: TypeAlias = tuple[int, int, int]
"""``(level in ticks, when it was written in µs, ticks to a unit then)``."""

_MAX_FULL = 2**50
"""The most ticks in a full bucket: an eighth of what is exact, so that a debt has room."""


class TokenBucketRule:
    """The rule of a `TokenBucket`."""

    script = "token_bucket"
    __slots__ = ("full", "gain", "limit", "params", "span", "tolerance", "unit")

    def __init__(self, policy: TokenBucket) -> None:
        self.limit = policy.limit
        self.unit, self.gain, self.span = _ticks(policy.interval, policy.limit)
        self.full = self.limit * self.unit
        self.tolerance = clock_tolerance(self._drain_us(self.full))
        self.params = (self.unit, self.gain, self.span, self.full, self.tolerance)

    def decide(self, state: State | None, now: int, op: int, cost: int) -> tuple[State | None, Answer]:
        """Answer one question, as `aiolimit.algorithms.rule` says."""
        unit = self.unit
        if op == TAKE and cost and state is not None:  # the common case alone: a known key, and it fits
            held, since, old_unit = state
            if old_unit == unit and since <= now:
                level = held - (now - since) * self.gain // self.span
                held = cost * unit + (level if level > 0 else 0)
                if held <= self.full:
                    reset = self._drain_us(held)
                    return (held, now, unit), (cost, (self.full - held) // unit, 0, reset)
        at = since = now
        level = held = 0
        if state is not None:
            held, since, old_unit = state
            if old_unit != unit:
                held = math.ceil(held / old_unit * unit)  # in floats, as Lua does it
            if since <= now:
                level = max(held - (now - since) * self.gain // self.span, 0)
            else:
                level = held
                if since - now <= self.tolerance:
                    at = since
                else:
                    since = now
                    state = (held, now, unit)
        free = (self.full - level) // unit if level < self.full else 0
        moved = moved_units(op, cost, free)
        if moved and (moved > 0 or state is not None):
            held = min(max(level + moved * unit, 0), MAX_EXACT)
            free = (self.full - held) // unit if held < self.full else 0
            return (held, at, unit), (max(moved, 0), free, 0, at + self._drain_us(held) - now)
        unmet = unmet_units(op, cost, free)
        retry = since + self._drain_us(held + unmet * unit - self.full) - now if unmet else 0
        return state, (0, free, retry, max(since + self._drain_us(held) - now, 0))

    def _drain_us(self, ticks: int) -> int:
        us = -(-ticks * self.span // self.gain)
        return us if us < MAX_WAIT_US else MAX_WAIT_US


def _ticks(interval: Fraction, burst: int) -> tuple[int, int, int]:
    """``(unit, gain, span)`` for one unit every ``interval`` microseconds and a bucket of ``burst`` units."""
    most = _MAX_FULL // burst
    if interval.numerator <= most:
        return interval.numerator, interval.denominator, 1
    if interval <= most:
        gain = math.floor(most / interval)
        return math.ceil(interval * gain), gain, 1
    span = math.ceil(interval / most)
    return math.ceil(interval / span), 1, span
