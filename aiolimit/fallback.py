"""Decisions in this process while the store cannot be asked: ``failure="local"``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from .algorithms import CHARGE, PEEK, TAKE, UP_TO
from .backends import MemoryBackend
from .policies import TokenBucket

if TYPE_CHECKING:
    from .algorithms import Answer
    from .keys import Key
    from .policies import Policy

_MAX_KEYS = 100_000
_NO_SHARE_US = 1_000_000
"""What to wait where this process's share is less than one unit, in microseconds: until the store may be back."""


class Fallback:
    """This process's share of a policy.

    It is told of every unit that the store admits for this process, so that an outage does not start it afresh; and it
    keeps account of what it admitted itself, so that the store can be told afterwards.

    Args:
        policy: The whole policy.
        share: This process's part of it, more than 0 and at most 1.
    """

    def __init__(self, policy: Policy, share: float) -> None:
        part = scaled(policy, share)
        self._limit = 0 if part is None else part.limit
        self._place = None if part is None else MemoryBackend(max_keys=_MAX_KEYS).place("fallback", part)
        self._owed: dict[Key, int] = {}

    @property
    def owes(self) -> bool:
        """Whether it admitted anything that the store does not know of."""
        return bool(self._owed)

    def admitted(self, key: Key, units: int) -> None:
        """The store admitted so many units."""
        if self._place is not None and units > 0:
            self._place.ask(CHARGE, key, units)

    def decide(self, op: int, key: Key, cost: int) -> Answer:
        """Answer in the store's place."""
        if self._place is None:
            return (0, 0, _NO_SHARE_US, _NO_SHARE_US) if op in {TAKE, UP_TO, PEEK} else (0, 0, 0, 0)
        if op == UP_TO:
            cost = min(cost, self._limit)
        elif op in {TAKE, PEEK} and cost > self._limit:
            remaining, reset_us = cast("Answer", self._place.ask(PEEK, key, 0))[1::2]
            return 0, remaining, _NO_SHARE_US, reset_us
        answer = cast("Answer", self._place.ask(op, key, cost))
        if answer[0] and (key in self._owed or len(self._owed) < _MAX_KEYS):
            self._owed[key] = self._owed.get(key, 0) + answer[0]
        return answer

    def take_owed(self) -> dict[Key, int]:
        """What the store is to be told, by key, as far as it still counts; it is owed no more."""
        owed, self._owed = self._owed, {}
        still = {key: min(units, self._in_use(key)) for key, units in owed.items()}
        return {key: units for key, units in still.items() if units}

    def _in_use(self, key: Key) -> int:
        assert self._place is not None
        return self._limit - cast("Answer", self._place.ask(PEEK, key, 0))[1]

    def owe(self, key: Key, units: int) -> None:
        """The store was not told after all."""
        self._owed[key] = self._owed.get(key, 0) + units


def scaled(policy: Policy, share: float) -> Policy | None:
    """The policy at a share of its numbers, rounded down; None where not one unit is left."""
    limit = math.floor(policy.limit * share)
    if limit < 1:
        return None
    if isinstance(policy, TokenBucket):
        return TokenBucket(policy.rate * share, policy.per, limit)
    return replace(policy, limit=limit)
