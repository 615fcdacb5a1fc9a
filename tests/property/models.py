"""Brute force: what each policy promises, in fractions and full lists, with no regard to cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from aiolimit import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import Policy


class Model(Protocol):
    """Knows whether so many units fit at a moment. Moments are microseconds and only go forward."""

    def room(self, now: int) -> Fraction:
        """How much fits, not below zero only where that matters to nobody."""
        ...

    def charge(self, now: int, units: int) -> None:
        """Charge units, whether they fit or not."""
        ...

    def refund(self, now: int, units: int) -> None:
        """Give units back, to no less than none in use."""
        ...


class Bucket:
    """A level that drains steadily."""

    def __init__(self, policy: TokenBucket) -> None:
        self.burst = policy.limit
        self.rate = 1 / policy.interval
        self.level = Fraction(0)
        self.at = 0

    def _drain(self, now: int) -> None:
        self.level = max(self.level - (now - self.at) * self.rate, Fraction(0))
        self.at = now

    def room(self, now: int) -> Fraction:
        """The burst, less the level."""
        self._drain(now)
        return self.burst - self.level

    def charge(self, now: int, units: int) -> None:
        """Raise the level."""
        self._drain(now)
        self.level += units

    def refund(self, now: int, units: int) -> None:
        """Lower it."""
        self._drain(now)
        self.level = max(self.level - units, Fraction(0))


class Windows:
    """Units by aligned window; the one before counts in proportion where the policy says so."""

    def __init__(self, policy: FixedWindow | SlidingWindow) -> None:
        self.limit = policy.limit
        self.window = round(policy.window * 1_000_000)
        self.slides = isinstance(policy, SlidingWindow)
        self.used: dict[int, int] = {}

    def room(self, now: int) -> Fraction:
        """The limit, less this window's units, less the last one's by their overlap."""
        index, elapsed = divmod(now, self.window)
        last = self.used.get(index - 1, 0) if self.slides else 0
        return self.limit - self.used.get(index, 0) - last * Fraction(self.window - elapsed, self.window)

    def charge(self, now: int, units: int) -> None:
        """Count in this window."""
        index = now // self.window
        self.used[index] = self.used.get(index, 0) + units

    def refund(self, now: int, units: int) -> None:
        """Take from this window, and from the last one what this has not."""
        index = now // self.window
        here = min(units, self.used.get(index, 0))
        self.used[index] = self.used.get(index, 0) - here
        if self.slides:
            self.used[index - 1] = max(self.used.get(index - 1, 0) - (units - here), 0)


class Log:
    """The time of every unit, ever."""

    def __init__(self, policy: SlidingLog) -> None:
        self.limit = policy.limit
        self.window = round(policy.window * 1_000_000)
        self.units: list[tuple[int, int]] = []

    def _forget(self, now: int) -> None:
        self.units = [(at, units) for at, units in self.units if at > now - self.window]

    def room(self, now: int) -> Fraction:
        """The limit, less the units of the half-open window that ends now."""
        self._forget(now)
        return Fraction(self.limit - sum(units for _, units in self.units))

    def charge(self, now: int, units: int) -> None:
        """Remember them."""
        self.units.append((now, units))

    def refund(self, now: int, units: int) -> None:
        """Forget the oldest that count."""
        self._forget(now)
        while units and self.units:
            at, oldest = self.units.pop(0)
            if oldest > units:
                self.units.insert(0, (at, oldest - units))
            units -= min(units, oldest)


def model_of(policy: Policy) -> Model:
    """The model of a policy."""
    if isinstance(policy, TokenBucket):
        return Bucket(policy)
    return Log(policy) if isinstance(policy, SlidingLog) else Windows(policy)
