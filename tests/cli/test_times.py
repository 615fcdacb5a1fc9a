"""Timestamps are read as what they say, or refused with the reason."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiolimit.cli.times import LATEST_US, TimeError, format_time, parse_number, parse_text
from tests.cli.support import any_time

NOON_US = 1_709_208_000_000_000  # 2024-02-29T12:00:00Z


@pytest.mark.parametrize(
    "text",
    [
        "29/Feb/2024:12:00:00 +0000",
        "29/Feb/2024:13:30:00 +0130",
        "29/feb/2024:04:00:00 -08:00",
        "29/Feb/2024:11:59:60 +0000",  # a leap second is the first of the next minute
        "29/Feb/2024:12:00:00.000 +0000",
        "2024-02-29T12:00:00Z",
        "2024-02-29T12:00:00",
        "2024-02-29 12:00:00,000",
        "2024-02-29T17:30:00+05:30",
        "2024-02-29 13:00:00 +0100",
        "2024-02-29 12:00:00 UTC",
        " 2024-02-29T12:00:00.000000000Z ",
        "1709208000",
        "1709208000.000",
        "1.709208e9",
        "1709208000000",
        "1709208000000000",
        "1709208000000000000",
    ],
)
def test_the_usual_ways_to_write_a_time_say_the_same(text: str) -> None:
    """Log format, ISO 8601 and numbers since 1970 in four units."""
    assert parse_text(text) == NOON_US


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("29/Feb/2024:12:00:00.25 +0000", 250_000),
        ("2024-02-29T12:00:00.000001Z", 1),
        ("1709208000.123456", 123_456),
        ("1709208000123.5", 123_500),
        ("1709208000000001999", 2),
    ],
)
def test_fractions_are_kept_to_the_microsecond(text: str, micros: int) -> None:
    """Finer ones are rounded or cut."""
    assert parse_text(text) == NOON_US + micros


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither"),
        ("yesterday", "neither"),
        ("29/Foo/2024:12:00:00 +0000", "no day '29/Foo/2024'"),
        ("30/Feb/2024:12:00:00 +0000", "no day '30/Feb/2024'"),
        ("29/Feb/2024:25:00:00 +0000", "no 25:00:00"),
        ("29/Feb/2024:12:00:61 +0000", "no 12:00:61"),
        ("31/Dec/1969:23:59:59 +0000", "1970 and 2262"),
        ("9999-12-31T00:00:00Z", "1970 and 2262"),
        ("-5", "1970 and 2262"),
        ("1e300", "1970 and 2262"),
        ("١٧٠٩", "neither"),
        ("2024-02-29T12:00:00Z" * 100, "neither"),
    ],
)
def test_what_is_no_time_is_refused_with_the_reason(text: str, reason: str) -> None:
    """Days and hours that do not exist, and times outside what can be told apart."""
    with pytest.raises(TimeError, match=reason):
        parse_text(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 10**400], ids=["nan", "inf", "-1", "10**400"])
def test_a_number_that_is_no_moment_is_refused(number: float) -> None:
    """Whether it is no number, before 1970, or far too large."""
    with pytest.raises(TimeError, match="1970 and 2262"):
        parse_number(number)


@any_time
@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    """No other exception."""
    with contextlib.suppress(TimeError):
        assert 0 <= parse_text(text) < LATEST_US


@any_time
@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2261, 1, 1)),  # noqa: DTZ001 - the zone comes next
    st.integers(min_value=-14 * 60, max_value=14 * 60),
)
def test_clf_and_iso_agree_in_every_zone(moment: datetime, offset_minutes: int) -> None:
    """The same moment, written for a log and for everybody else."""
    local = moment.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=offset_minutes)))
    micros = (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_text(local.strftime("%d/%b/%Y:%H:%M:%S %z")) == micros
    assert parse_text(local.isoformat()) == micros


def test_a_time_is_shown_in_utc_with_the_digits_it_needs() -> None:
    """Whole seconds without a fraction."""
    assert format_time(NOON_US) == "2024-02-29T12:00:00Z"
    assert format_time(NOON_US + 1) == "2024-02-29T12:00:00.000001Z"
