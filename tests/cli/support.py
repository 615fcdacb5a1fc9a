"""Logs made by hand, the command in a process of its own, and models that say what a replay must find.

The models share no code with the package: they keep everything and count, in fractions.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from hypothesis import settings

from tests.support import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "access.log"
START = datetime(2024, 2, 29, 23, 59, 0, tzinfo=UTC)
"""At the start of a minute, so that offsets in seconds read as places in a window."""

any_time = settings(deadline=None)
"""A test whose examples may take as long as a loaded machine needs."""

Request = tuple[Fraction, str, int]
"""When, in seconds; the key; the cost."""
Model = Callable[[Sequence[Request]], list[bool]]


def aiolimit(
    *arguments: str | Path, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, and capture what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "aiolimit.cli", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **(environment or {})},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def line(seconds: float, ip: str = "192.0.2.1", path: str = "/", *, offset: str = "+0000", size: str = "512") -> str:
    """A line of a combined log, `seconds` after `START`."""
    when = (START + timedelta(seconds=seconds)).strftime("%d/%b/%Y:%H:%M:%S")
    return f'{ip} - - [{when} {offset}] "GET {path} HTTP/1.1" 200 {size} "-" "test/1.0"\n'


def example_requests() -> list[Request]:
    """The requests of the example log in order of time, read without the package."""
    found: list[Request] = []
    for text in EXAMPLE.read_text().splitlines():
        ip, when = re.match(r"(\S+) - - \[([^\]]+)\]", text).groups()  # type: ignore[union-attr]
        moment = datetime.strptime(when, "%d/%b/%Y:%H:%M:%S %z")
        found.append((Fraction(moment.timestamp()), ip, 1))
    return sorted(found, key=lambda request: request[0])


def bucket(rate: int, per: int, burst: int) -> Model:
    """A bucket that fills continuously."""

    def decide(requests: Sequence[Request]) -> list[bool]:
        state: dict[str, tuple[Fraction, Fraction]] = {}
        answers: list[bool] = []
        for at, key, cost in requests:
            level, since = state.get(key, (Fraction(burst), at))
            level = min(Fraction(burst), level + (at - since) * rate / per)
            answers.append(level >= cost)
            state[key] = (level - cost if answers[-1] else level, at)
        return answers

    return decide


def fixed_window(limit: int, window: int) -> Model:
    """A count for each multiple of the window since 1970."""

    def decide(requests: Sequence[Request]) -> list[bool]:
        used: defaultdict[tuple[str, int], int] = defaultdict(int)
        answers: list[bool] = []
        for at, key, cost in requests:
            answers.append(used[key, at // window] + cost <= limit)
            used[key, at // window] += cost * answers[-1]
        return answers

    return decide


def sliding_window(limit: int, window: int) -> Model:
    """This window's count, and the last one's by how much of it still overlaps."""

    def decide(requests: Sequence[Request]) -> list[bool]:
        used: defaultdict[tuple[str, int], int] = defaultdict(int)
        answers: list[bool] = []
        for at, key, cost in requests:
            index, elapsed = divmod(at, window)
            estimate = used[key, index] + used[key, index - 1] * (1 - Fraction(elapsed) / window)
            answers.append(estimate + cost <= limit)
            used[key, index] += cost * answers[-1]
        return answers

    return decide


def sliding_log(limit: int, window: int) -> Model:
    """Everything admitted within the last window, counted anew each time."""

    def decide(requests: Sequence[Request]) -> list[bool]:
        admitted: list[Request] = []
        answers: list[bool] = []
        for at, key, cost in requests:
            recent = sum(units for when, who, units in admitted if who == key and at - window < when <= at)
            answers.append(recent + cost <= limit)
            if answers[-1]:
                admitted.append((at, key, cost))
        return answers

    return decide
