"""Timestamps as logs write them, in integer microseconds since 1970, UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

LATEST_US = 2**63 // 1000
"""The last moment taken for a time, in the year 2262: the last that nanoseconds can say in 64 bits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLF = re.compile(r"(\d{1,2}/[A-Za-z]{3}/\d{4}):(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? ([+-])(\d\d):?(\d\d)", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SPACED_OFFSET = re.compile(r" (?=[+-]\d\d:?\d\d$)", re.ASCII)
_EPOCH_UNITS = ((Decimal(10) ** 11, 6), (Decimal(10) ** 14, 3), (Decimal(10) ** 17, 0), (Decimal(10) ** 20, -3))
"""``(below, power of ten to microseconds)``: seconds until the year 5138, then milli-, micro- and nanoseconds."""


class TimeError(ValueError):
    """A value that is not a time; the message is the reason."""


@lru_cache(maxsize=8192)
def parse_text(text: str) -> int:
    """Read ``17/May/2015:10:05:03 +0000``, ISO 8601 (without an offset: UTC), or a number since 1970.

    The size of a number tells seconds, milliseconds, microseconds and nanoseconds apart.

    Raises:
        TimeError: When it is none of these, or not between 1970 and 2262.
    """
    text = text.strip()
    if clf := _CLF.fullmatch(text):
        return _within(_from_clf(text, clf), text)
    if _NUMBER.fullmatch(text):
        return parse_number(Decimal(text))
    return _within(_from_iso(text), text)


def parse_number(number: Decimal | float) -> int:
    """Read a number since 1970, as `parse_text` does.

    Raises:
        TimeError: When it is not between 1970 and 2262.
    """
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    if not exact.is_finite() or exact < 0:
        raise TimeError(f"time {str(exact)[:40]} is not between 1970 and 2262")
    for below, power in _EPOCH_UNITS:
        if exact < below:
            return _within(int(exact.scaleb(power).to_integral_value()), str(exact))
    raise TimeError(f"time {str(exact)[:40]} is not between 1970 and 2262")


def format_time(at_us: int) -> str:
    """ISO 8601 in UTC, with as many digits of the second as it takes."""
    moment = _EPOCH + timedelta(microseconds=at_us)
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _from_clf(text: str, clf: re.Match[str]) -> int:
    day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = clf.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:  # 60 is a leap second
        raise TimeError(f"time {text!r}: there is no {hour}:{minute}:{second}")
    offset = int(offset_hours) * 60 + int(offset_minutes)
    minutes = int(hour) * 60 + int(minute) + (offset if sign == "-" else -offset)
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    return _midnight_us(day) + (minutes * 60 + int(second)) * 1_000_000 + micros


@lru_cache(maxsize=1024)
def _midnight_us(day: str) -> int:
    number, month, year = day.split("/")
    try:
        date = datetime(int(year), _MONTHS.index(month.lower()) + 1, int(number), tzinfo=UTC)
    except ValueError:
        raise TimeError(f"there is no day {day!r}") from None
    return (date - _EPOCH) // _MICROSECOND


def _from_iso(text: str) -> int:
    plain = _SPACED_OFFSET.sub("", text.removesuffix(" UTC").removesuffix(" GMT"))
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise TimeError(
            f"time {text[:60]!r} is neither 17/May/2015:10:05:03 +0000, nor ISO 8601, nor a number since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _within(at_us: int, text: str) -> int:
    if not 0 <= at_us < LATEST_US:
        raise TimeError(f"time {text[:60]!r} is not between 1970 and 2262")
    return at_us
