"""The figures of a replay; `docs/simulate.md` defines each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..policies import Policy
    from .reading import Arrival


class KeyTally(NamedTuple):
    """One key."""

    key: str
    requests: int
    refused: int

    @property
    def admitted(self) -> int:
        """The requests that went through."""
        return self.requests - self.refused

    @property
    def refused_share(self) -> float:
        """Of its requests, 0 to 1."""
        return self.refused / self.requests


@dataclass(frozen=True, slots=True)
class Waits:
    """How long requests would have waited, in seconds; over those that would have had to wait at all."""

    waiting: int
    p50: float | None
    p95: float | None
    longest: float | None


@dataclass(frozen=True, slots=True)
class Tally:
    """What one policy made of a log."""

    policy: str
    requests: int
    admitted: int
    refused: int
    never: int
    """Refused because the cost alone is above what the policy ever admits at once; they are among the refused."""
    units: int
    units_admitted: int
    by_key: tuple[KeyTally, ...]
    """The worst first: most refused, then most requests, then by name."""
    first_refused: Arrival | None
    waits: Waits

    @property
    def refused_share(self) -> float:
        """Of the requests, 0 to 1; 0 when there are none."""
        return self.refused / self.requests if self.requests else 0.0

    @property
    def keys_refused(self) -> int:
        """Keys that were refused at least once."""
        return sum(each.refused > 0 for each in self.by_key)


def tally(
    text: str, policy: Policy, arrivals: Sequence[Arrival], admitted: Sequence[bool], waits: Sequence[float]
) -> Tally:
    """Count up who of ``arrivals`` was ``admitted``."""
    counts: dict[str, list[int]] = {}
    first_refused: Arrival | None = None
    for arrival, allowed in zip(arrivals, admitted, strict=True):
        count = counts.setdefault(arrival.key, [0, 0])
        count[0] += 1
        if not allowed:
            count[1] += 1
            first_refused = first_refused or arrival
    by_key = [KeyTally(key, requests, refused) for key, (requests, refused) in counts.items()]
    by_key.sort(key=lambda each: (-each.refused, -each.requests, each.key))
    return Tally(
        policy=text,
        requests=len(arrivals),
        admitted=sum(admitted),
        refused=len(arrivals) - sum(admitted),
        never=sum(arrival.cost > policy.limit for arrival in arrivals),
        units=sum(arrival.cost for arrival in arrivals),
        units_admitted=sum(arrival.cost for arrival, allowed in zip(arrivals, admitted, strict=True) if allowed),
        by_key=tuple(by_key),
        first_refused=first_refused,
        waits=_summary([wait for wait in waits if wait > 0]),
    )


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """The nearest rank: the smallest value that at least ``percent`` of all values do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1] if ordered else None


def _summary(waits: list[float]) -> Waits:
    waits.sort()
    return Waits(len(waits), percentile(waits, 50), percentile(waits, 95), waits[-1] if waits else None)
