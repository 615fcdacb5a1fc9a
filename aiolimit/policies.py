"""What a limit says. Policies are frozen values, checked when they are made.

Each can be written as text, ``100/minute burst 20``, and ``str(policy)`` gives a text that parses back to it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, cast

from .errors import PolicyError

MAX_UNITS = 1_000_000_000
"""The largest burst or limit. Up to here the integer arithmetic of every rule is exact, in Python and in Lua."""
MAX_LOG_UNITS = 1_000_000
"""The largest limit of a `SlidingLog`, which stores eight bytes for each unit."""
MIN_PERIOD = 0.001
"""The shortest period or window, in seconds."""
_MAX_NUMBER = 1e18
MAX_PERIOD = 10 * 366 * 86_400.0
"""The longest period, window, or time for one unit to come back, in seconds: ten years."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Admit ``rate`` units per ``per`` seconds on average, and up to ``burst`` at once from idle.

    Units come back continuously. GCRA and the leaky bucket as a meter are this policy under other names: they admit the
    same requests.

    Args:
        rate: Units that come back in ``per`` seconds; more than 0, whole or not.
        per: Seconds.
        burst: The whole amount admitted from idle, in units; ``rate`` rounded down, at least 1, unless given.
        name: What to call this policy where a limiter has several.

    Raises:
        PolicyError: When an argument is not a number in its range.
    """

    rate: float
    per: float = 1.0
    burst: int | None = None
    name: str | None = field(default=None, kw_only=True)
    tag: ClassVar[str] = "tb"

    def __post_init__(self) -> None:
        _check_number("rate", self.rate)
        _check_period("per", self.per)
        if self.rate <= 0:
            raise PolicyError(f"rate must be more than 0 units per period, not {self.rate!r}")
        if self.rate * MAX_PERIOD < self.per:
            raise PolicyError(f"rate {self.rate!r} per {self.per!r} s is too slow: one unit must come within ten years")
        if self.burst is None:
            if self.rate >= MAX_UNITS + 1:
                raise PolicyError(f"rate {self.rate!r} is above the largest burst, {MAX_UNITS}: give a burst")
            object.__setattr__(self, "burst", max(1, math.floor(self.rate)))
        _check_units("burst", self.burst, MAX_UNITS)
        _check_name(self.name)

    @property
    def limit(self) -> int:
        """The most units admitted at once: the burst."""
        assert self.burst is not None
        return self.burst

    @property
    def interval(self) -> Fraction:
        """Microseconds for one unit to come back, exactly as the numbers were written."""
        return plain_fraction(self.per) * 1_000_000 / plain_fraction(self.rate)

    def __str__(self) -> str:
        burst = "" if self.limit == max(1, math.floor(self.rate)) else f" burst {self.burst}"
        return f"{_number_text(self.rate)}/{_period_text(self.per)}{burst}"


@dataclass(frozen=True, slots=True)
class _Window:
    """What the three windows share: ``limit`` units in ``window`` seconds."""

    limit: int
    window: float
    name: str | None = field(default=None, kw_only=True)
    most: ClassVar[int] = MAX_UNITS
    word: ClassVar[str]

    def __post_init__(self) -> None:
        _check_units("limit", self.limit, self.most)
        _check_period("window", self.window)
        _check_name(self.name)

    def __str__(self) -> str:
        return f"{self.limit}/{_period_text(self.window)} {self.word}"


class FixedWindow(_Window):
    """Admit ``limit`` units in every window; windows start at multiples of ``window`` seconds since 1970, UTC.

    The cheapest rule, and the only one that lets twice its limit through around a window's edge. A day is 86,400 s: it
    knows no calendar, time zone or daylight saving time.

    Args:
        limit: Units per window.
        window: Seconds.
        name: What to call this policy where a limiter has several.

    Raises:
        PolicyError: When an argument is not a number in its range.
    """

    __slots__ = ()
    tag: ClassVar[str] = "fw"
    word: ClassVar[str] = "fixed"


class SlidingWindow(_Window):
    """Admit about ``limit`` units in any ``window`` seconds, from two counters.

    The last window counts in proportion to how much of it still overlaps: ``previous · (1 - elapsed/window) + current``
    never exceeds ``limit``. An estimate that takes the last window's traffic as even, so who always asks
    for more gets up to one unit less than ``limit`` in a window. A large limit needs no more memory than a small one.

    Args:
        limit: Units per window.
        window: Seconds.
        name: What to call this policy where a limiter has several.

    Raises:
        PolicyError: When an argument is not a number in its range.
    """

    __slots__ = ()
    tag: ClassVar[str] = "sw"
    word: ClassVar[str] = "sliding"


class SlidingLog(_Window):
    """Admit exactly ``limit`` units in any ``window`` seconds, by remembering when each was admitted.

    A unit counts at ``now`` when it was admitted in ``(now - window, now]``. Takes eight bytes on the server for each
    unit of the limit.

    Args:
        limit: Units per window, at most a million.
        window: Seconds.
        name: What to call this policy where a limiter has several.

    Raises:
        PolicyError: When an argument is not a number in its range.
    """

    __slots__ = ()
    tag: ClassVar[str] = "sl"
    most: ClassVar[int] = MAX_LOG_UNITS
    word: ClassVar[str] = "log"


Policy = TokenBucket | FixedWindow | SlidingWindow | SlidingLog


def plain_fraction(number: float) -> Fraction:
    """The simplest fraction that is this number: 1/3 for ``1 / 3``, 1/10 for ``0.1``."""
    exact = Fraction(number)
    for digits in (1, 3, 6, 9):
        simple = exact.limit_denominator(10**digits)
        if simple and float(simple) == number:
            return simple
    return exact


_UNITS: dict[str, float] = {}
for _seconds, _names in (
    (0.001, "ms millisecond milliseconds"),
    (1.0, "s sec secs second seconds"),
    (60.0, "m min mins minute minutes"),
    (3600.0, "h hr hrs hour hours"),
    (86_400.0, "d day days"),
):
    _UNITS.update(dict.fromkeys(_names.split(), _seconds))

_SHAPE = re.compile(
    r"""\s* (?P<amount> [0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)? ) \s* (?: / | \bper\b ) \s*
    (?P<count> [0-9]+(?:\.[0-9]+)? )? \s* (?P<unit> [a-zµ]+ ) \s*
    (?: \b burst \s+ (?P<burst> [0-9]+(?:_[0-9]+)* ) )? \s* (?P<kind> fixed | sliding | log )? \s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_KINDS: dict[str, type[_Window]] = {"fixed": FixedWindow, "sliding": SlidingWindow, "log": SlidingLog}
_HINT = (
    "write N/[k]unit [burst B] or N/[k]unit fixed|sliding|log, as in '100/minute burst 20' or '1000/h sliding'; "
    "units: ms, s, m (minute), h, d; no commas in numbers"
)


def parse_policies(text: str) -> tuple[Policy, ...]:
    """Read policy text: ``N/[k]unit [burst B] [fixed|sliding|log]``, several joined by ``;`` or ``,``.

    Raises:
        PolicyError: When the text is not of that form, naming the part and what would be right.
    """
    return tuple(_parse_one(part) for part in re.split(r"[;,]", text))


def _parse_one(text: str) -> Policy:
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise PolicyError(f"cannot read the policy {_clip(text)!r}: {_HINT}")
    amount, count, unit, burst, kind = shape.group("amount", "count", "unit", "burst", "kind")
    if unit.lower().rstrip("s") in {"month", "year", "mo", "mth", "yr", "y"}:
        raise PolicyError(f"{_clip(unit)!r} in {_clip(text)!r} has no fixed length: write days, as in '30d' or '365d'")
    if unit.lower() not in _UNITS:
        raise PolicyError(f"unknown unit {_clip(unit)!r} in the policy {_clip(text)!r}: {_HINT}")
    period = float(Fraction(count or "1") * plain_fraction(_UNITS[unit.lower()]))
    number = float(amount)
    units: int | float = int(number) if number.is_integer() else number
    if kind is None:
        return TokenBucket(units, period, None if burst is None else int(burst))
    if burst is not None:
        raise PolicyError(f"'burst' belongs to a token bucket; leave out 'burst' or {kind!r} in {_clip(text)!r}")
    if isinstance(units, float):
        raise PolicyError(f"a {kind.lower()} policy counts whole units, not {amount}, in {_clip(text)!r}")
    return cast("Policy", _KINDS[kind.lower()](units, period))


def _clip(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _shown(value: object) -> str:
    try:
        return _clip(repr(value))
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"


def _number_text(number: float) -> str:
    return repr(int(number)) if float(number).is_integer() else repr(number)


def _period_text(seconds: float) -> str:
    exact = plain_fraction(seconds)
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / plain_fraction(_UNITS[unit])
        if count.denominator == 1:
            return unit if count == 1 else f"{count}{unit}"
    return f"{seconds!r}s"


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_NUMBER:
        raise PolicyError(f"{what} must be a finite number below 1e18, not {_shown(value)} ({type(value).__name__})")


def _check_period(what: str, seconds: float) -> None:
    _check_number(what, seconds)
    if not MIN_PERIOD <= seconds <= MAX_PERIOD:
        raise PolicyError(
            f"{what} must be between {MIN_PERIOD} s and {MAX_PERIOD:.0f} s (ten years), not {seconds!r} s"
        )


def _check_units(what: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f"{what} must be a whole number of units, not {_shown(value)} ({type(value).__name__})")
    if not 1 <= value <= most:
        raise PolicyError(
            f"{what} must be between 1 and {most}, not {_shown(value)}; to refuse everything, do not ask a limiter"
        )


def _check_name(name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise PolicyError(f"name must be a text that is not empty, or None, not {name!r}")
