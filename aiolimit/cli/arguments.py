"""Checking the command line: whatever is wrong is named with its value and with what would be right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..errors import PolicyError
from ..policies import parse_policies
from .exits import wrong_argument
from .formats import FORMATS
from .keys import KeyTemplate
from .reading import Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..policies import Policy
    from .formats import FormatName


_COUNT_DIGITS = 10


class NamedPolicy(NamedTuple):
    """A policy and the text it was given as."""

    text: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """A command line that makes sense."""

    log: str
    policies: tuple[NamedPolicy, ...]
    """At least one."""
    columns: Columns
    format: FormatName
    top: int
    json: bool
    fail_over: float | None
    """A share, 0 to 1."""
    url: str | None
    speed: float | None


def check(
    *,
    log: str,
    policy: str,
    compare: Sequence[str] = (),
    key: str = "ip",
    log_format: str = "auto",
    time_field: str | None = None,
    cost_field: str | None = None,
    top: str = "10",
    json: bool = False,
    fail_over: str | None = None,
    url: str | None = None,
    speed: str | None = None,
) -> Settings:
    """Make settings of the arguments, as they were typed.

    Raises:
        CommandError: When one is wrong.
    """
    if speed is not None and url is None:
        raise wrong_argument("--speed", speed, "is for a live run; give the server's --url as well")
    return Settings(
        log=log,
        policies=(_policy("--policy", policy), *(_policy("--compare", text) for text in compare)),
        columns=Columns(_key(key), time_field, cost_field),
        format=_format(log_format),
        top=_count("--top", top),
        json=json,
        fail_over=None if fail_over is None else _share("--fail-over", fail_over),
        url=None if url is None else _url(url),
        speed=None if speed is None else _speed(speed),
    )


def _policy(argument: str, text: str) -> NamedPolicy:
    try:
        policies = parse_policies(text)
    except PolicyError as error:
        raise wrong_argument(argument, text, str(error)) from None
    if len(policies) != 1:
        raise wrong_argument(argument, text, f"{len(policies)} policies; give one here, and others with --compare")
    return NamedPolicy(text.strip(), policies[0])


def _key(text: str) -> KeyTemplate:
    try:
        return KeyTemplate(text)
    except ValueError as error:
        raise wrong_argument("--key", text, str(error)) from None


def _format(text: str) -> FormatName:
    for name in FORMATS:
        if text == name:
            return name
    raise wrong_argument("--format", text, f"give one of {', '.join(FORMATS)}")


def _share(argument: str, text: str) -> float:
    number = _number(text.strip().removesuffix("%"))
    if number is not None and text.strip().endswith("%"):
        number /= 100
    if number is None or not 0 <= number <= 1:
        raise wrong_argument(argument, text, "give a share from 0 to 1, or 0% to 100%, as in 0.05 or 5%")
    return number


def _count(argument: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < _COUNT_DIGITS):
        raise wrong_argument(argument, text, "give a whole number, 0 or more")
    return int(text)


def _speed(text: str) -> float:
    number = _number(text)
    if number is None or number <= 0:
        raise wrong_argument("--speed", text, "give how many times as fast as the log, more than 0, as in 60")
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _url(text: str) -> str:
    from ..backends.redis import RedisBackend
    from ..backends.urls import redacted

    try:
        RedisBackend.from_url(text)  # no I/O
    except ValueError as error:
        raise wrong_argument("--url", redacted(text) if "://" in text else text, str(error)) from None
    return text
