"""For the tests of applications that use limiters: a clock to set, faults to cause, and a switch over all limiters."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import override
from .faulty import FaultyBackend
from .proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["FakeClock", "FaultProxy", "FaultyBackend", "allow_all", "deny_all"]


class FakeClock:
    """A clock for ``MemoryBackend(clock=...)`` that goes on when told to.

    Args:
        seconds: What it shows at first, in seconds since 1970.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.now_us = round(seconds * 1_000_000)

    def __call__(self) -> int:
        """The time, in microseconds."""
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass; fewer than none sets it back."""
        self.now_us += round(seconds * 1_000_000)


@contextmanager
def allow_all() -> Generator[None, None, None]:
    """Make every limiter of this process admit everything, without asking anybody and without charging."""
    with _forced(answer=True):
        yield


@contextmanager
def deny_all() -> Generator[None, None, None]:
    """Make every limiter of this process refuse everything, without asking anybody."""
    with _forced(answer=False):
        yield


@contextmanager
def _forced(*, answer: bool) -> Generator[None, None, None]:
    before, override.forced = override.forced, answer
    try:
        yield
    finally:
        override.forced = before
