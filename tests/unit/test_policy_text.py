"""Policy text: all the ways to write a policy, and what the others are told."""

from __future__ import annotations

import pytest

from aiolimit import FixedWindow, PolicyError, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import Policy, parse_policies

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("10/s", TokenBucket(10)),
        ("100/minute burst 20", TokenBucket(100, 60, 20)),
        ("100 per minute burst 20", TokenBucket(100, 60, 20)),
        ("100/minute  burst  20", TokenBucket(100, 60, 20)),
        ("1000/h", TokenBucket(1000, 3600)),
        ("1000/h fixed", FixedWindow(1000, 3600)),
        ("1000/h sliding", SlidingWindow(1000, 3600)),
        ("1000/h log", SlidingLog(1000, 3600)),
        ("5/15m", TokenBucket(5, 900)),
        ("5/15 minutes fixed", FixedWindow(5, 900)),
        ("5 / 1.5 s", TokenBucket(5, 1.5)),
        ("0.5/s", TokenBucket(0.5)),
        ("2.5/s burst 9", TokenBucket(2.5, 1, 9)),
        ("1e3/s", TokenBucket(1000)),
        ("1_000/d", TokenBucket(1000, DAY)),
        ("1/365d log", SlidingLog(1, 365 * DAY)),
        ("7/100ms", TokenBucket(7, 0.1)),
        ("10/S FIXED", FixedWindow(10, 1)),
        ("  10/s\t", TokenBucket(10)),
        ("10 per hour", TokenBucket(10, 3600)),
        ("10 PER Hour", TokenBucket(10, 3600)),
    ],
)
def test_text_is_read(text: str, policy: Policy) -> None:
    """In any case, with or without spaces."""
    assert parse_policies(text) == (policy,)


@pytest.mark.parametrize(
    ("names", "seconds"),
    [
        ("ms millisecond milliseconds", 0.001),
        ("s sec secs second seconds", 1),
        ("m min mins minute minutes", 60),
        ("h hr hrs hour hours", 3600),
        ("d day days", DAY),
    ],
)
def test_units_have_short_and_long_names(names: str, seconds: float) -> None:
    """And m is a minute."""
    for name in names.split():
        assert parse_policies(f"3/{name} fixed") == (FixedWindow(3, seconds),)
        assert parse_policies(f"3 per 2 {name} fixed") == (FixedWindow(3, 2 * seconds),)


@pytest.mark.parametrize("text", ["10/s;1000/h", "10/s, 1000/h", "10/s ;\n1000/h"])
def test_several_are_joined_by_a_semicolon_or_a_comma(text: str) -> None:
    """In their order."""
    assert parse_policies(text) == (TokenBucket(10), TokenBucket(1000, 3600))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot read the policy ''"),
        ("   ", "cannot read"),
        ("5", "cannot read the policy '5'"),
        ("/s", "cannot read"),
        ("10/s;", "cannot read the policy ''"),
        ("10//s", "cannot read"),
        ("-1/s", "cannot read the policy '-1/s'"),
        ("nan/s", "cannot read"),
        ("inf/s", "cannot read"),
        ("\uff110/s", "cannot read"),
        ("10/s burst", "cannot read"),
        ("10/s burst 1.5", "cannot read"),
        ("10/s burst -5", "cannot read"),
        ("10/s fixed sliding", "cannot read"),
        ("10/s please", "cannot read"),
        ("1__0/s", "cannot read|number"),
        ("10/fortnight", "unknown unit 'fortnight'"),
        ("10/us", "unknown unit 'us'"),
        ("10/µs", "unknown unit 'µs'"),
        ("10/month", "'month' in '10/month' has no fixed length: write days, as in '30d'"),
        ("10/2 months", "has no fixed length"),
        ("10/mo", "has no fixed length"),
        ("10/year", "has no fixed length"),
        ("10/y", "has no fixed length"),
        ("0/s", "rate must be more than 0"),
        ("0/s log", "limit must be between 1 and 1000000, not 0"),
        ("1e400/s", "rate must be"),
        ("10/0s", "per must be between"),
        ("10/4000d", "per must be between .* not 345600000.0 s"),
        ("10/s burst 0", "burst must be between 1 and"),
        ("10/s burst 10000000000", "burst must be between 1 and"),
        ("1.5/s fixed", "counts whole units, not 1.5"),
        ("10/s burst 5 fixed", "'burst' belongs to a token bucket"),
        ("10/s burst 5 LOG", "'burst' belongs to a token bucket"),
        ("2000000/s log", "limit must be between 1 and 1000000, not 2000000"),
    ],
)
def test_text_that_is_none_is_told_why(text: str, told: str) -> None:
    """With the part that is wrong and, where it is the form, with what would be right."""
    with pytest.raises(PolicyError, match=told) as failed:
        parse_policies(text)
    if "cannot read" in str(failed.value):
        assert "write N/[k]unit [burst B] or N/[k]unit fixed|sliding|log" in str(failed.value)


def test_a_long_text_is_not_repeated_whole() -> None:
    """The error stays readable, and reading stays quick."""
    for text in ("1" * 100_000, "1/s " + "fixed " * 50_000, " " * 200_000, "1/" + "s" * 100_000):
        with pytest.raises(PolicyError) as failed:
            parse_policies(text)
        assert len(str(failed.value)) < 400


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (TokenBucket(100, 60, 20), "100/m burst 20"),
        (TokenBucket(10), "10/s"),
        (TokenBucket(1, 3, 1), "1/3s"),
        (TokenBucket(0.5, 1), "0.5/s"),
        (FixedWindow(5, 900), "5/15m fixed"),
        (SlidingWindow(5, 0.25), "5/250ms sliding"),
        (SlidingLog(5, 2 * DAY), "5/2d log"),
        (FixedWindow(5, 1.5), "5/1500ms fixed"),
    ],
)
def test_a_policy_prints_as_its_shortest_text(policy: Policy, text: str) -> None:
    """Which parses back."""
    assert str(policy) == text
    assert parse_policies(text) == (policy,)
