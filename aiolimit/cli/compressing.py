"""Compressing the time of a log and of a policy alike, so that the same requests are admitted in less time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..policies import MIN_PERIOD, SlidingLog, SlidingWindow, TokenBucket
from .exits import wrong_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..policies import Policy
    from .reading import Arrival

RUN_SECONDS = 10.0
"""How long a run takes when ``--speed`` is not given, unless one of the next two makes it longer."""
DEFAULT_MIN_PERIOD = 0.02
"""The shortest period that is chosen by default, in seconds: arrivals are right to about a millisecond."""
DEFAULT_MAX_RATE = 2_000
"""The most arrivals a second, on average, that are chosen by default."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """A policy whose periods are ``speed`` times as short, and when the arrivals come."""

    policy: Policy
    speed: float
    offsets_us: list[int]
    """When each arrival comes after the first, in microseconds of the log, without the idle time that is left out."""
    aligned_us: int | None = None
    """The length of the compressed windows in microseconds, where they start at multiples of it; else None."""
    phase_us: int = 0
    """How far into such a window the first arrival lies."""


def compress(policy: Policy, arrivals: Sequence[Arrival], speed: float | None = None) -> Compressed:
    """Divide the policy's periods by ``speed``, or by one that suits policy and arrivals.

    A window becomes a whole number of microseconds, as it is on the server, and the speed follows it, so that they
    still line up a thousand windows later.

    Raises:
        CommandError: When a period would become too short or too long for a policy; says the fastest that works.
    """
    offsets_us = without_idle_time(policy, arrivals)
    if speed is None:
        speed = default_speed(policy, offsets_us)
    fastest = _period(policy) / MIN_PERIOD
    if speed > fastest:
        too_short = f"makes the period of {policy} shorter than {MIN_PERIOD} s"
        raise wrong_argument("--speed", speed, f"{too_short}; the fastest that works is {fastest:g}")
    try:
        if isinstance(policy, TokenBucket):
            return Compressed(replace(policy, per=policy.per / speed), speed, offsets_us)
        window_us = round(policy.window * 1_000_000 / speed)
        compressed = replace(policy, window=window_us / 1_000_000)
    except PolicyError as error:
        raise wrong_argument("--speed", speed, f"does not suit {policy}: {error}") from None
    whole_us = round(policy.window * 1_000_000)
    if isinstance(policy, SlidingLog):
        return Compressed(compressed, whole_us / window_us, offsets_us)
    phase_us = arrivals[0].at_us % whole_us * window_us // whole_us
    return Compressed(compressed, whole_us / window_us, offsets_us, window_us, phase_us)


def without_idle_time(policy: Policy, arrivals: Sequence[Arrival]) -> list[int]:
    """How long after the first each arrival comes, in microseconds, when nobody waits through a pause for nothing.

    A pause in which the policy forgets everything, twice over, changes no decision by being longer. It is cut to that,
    by whole windows where there are windows.
    """
    keep_us = 2 * _memory_us(policy)
    step_us = 1 if isinstance(policy, TokenBucket) else round(policy.window * 1_000_000)
    offsets: list[int] = []
    last_us = arrivals[0].at_us
    offset = 0
    for arrival in arrivals:
        pause = arrival.at_us - last_us
        last_us = arrival.at_us
        excess = max(pause - keep_us, 0)
        offset += pause - (excess - excess % step_us)
        offsets.append(offset)
    return offsets


def default_speed(policy: Policy, offsets_us: Sequence[int]) -> float:
    """The speed at which neither the arrivals nor one window takes longer than `RUN_SECONDS`.

    Never slower than the log; and never so fast that the policy's period or the space between arrivals comes near to
    what the client can time.
    """
    span = offsets_us[-1] / 1_000_000
    window = 0.0 if isinstance(policy, TokenBucket) else policy.window
    wanted = max(span, window) / max(RUN_SECONDS, len(offsets_us) / DEFAULT_MAX_RATE)
    return min(max(min(wanted, _period(policy) / DEFAULT_MIN_PERIOD), 1.0), _period(policy) / MIN_PERIOD)


def _period(policy: Policy) -> float:
    return policy.per if isinstance(policy, TokenBucket) else policy.window


def _memory_us(policy: Policy) -> int:
    """After how long without requests a key is as fresh as a new one, whatever came before."""
    if isinstance(policy, TokenBucket):
        return round(policy.interval * policy.limit)
    return round(policy.window * 1_000_000) * (2 if isinstance(policy, SlidingWindow) else 1)
