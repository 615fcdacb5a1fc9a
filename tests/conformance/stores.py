"""The backends under test, each with a clock that the test sets."""

from __future__ import annotations

import time
from typing import Any

from aiolimit import FixedWindow, MemoryBackend, RedisBackend, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.backends import Backend
from aiolimit.policies import Policy

from ..support.servers import Server

MIDNIGHT = 1_767_225_600
"""2026-01-01 00:00 UTC: every window that divides a day starts here."""
HOUR = 3600
PATIENCE = 10.0
"""The deadline of every call in these tests, in seconds: they are about answers, on machines that may be busy."""

KINDS = (TokenBucket, FixedWindow, SlidingWindow, SlidingLog)


def policies(limit: int = 10, window: float = HOUR) -> list[Policy]:
    """One policy of each kind that admits ``limit`` units from idle and as many in each ``window`` seconds."""
    return [kind(limit, window) for kind in KINDS]


def kind_name(policy: object) -> str:
    """The name of a policy's class, for the names of tests."""
    return policy.__name__ if isinstance(policy, type) else type(policy).__name__


class Store:
    """A backend whose clock starts at `MIDNIGHT` and is set by `at`.

    The clock in memory stands still between two settings; a server's goes on, so that answers in time are compared with
    a tolerance or with a limit on what may have passed.
    """

    source: str
    backend: Backend

    def at(self, seconds: float) -> None:
        """Set the clock to ``seconds`` after `MIDNIGHT`."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Move the clock on by ``seconds``: what a caller does who waits that long."""
        raise NotImplementedError

    def keys(self) -> int:
        """How many keys are kept."""
        raise NotImplementedError

    def contents(self) -> dict[bytes, bytes]:
        """All that is kept, as comparable bytes."""
        raise NotImplementedError


class MemoryStore(Store):
    """The backend in this process, on a clock of the test's own."""

    source = "memory"

    def __init__(self) -> None:
        self.now_us = MIDNIGHT * 1_000_000
        self.backend: MemoryBackend = MemoryBackend(clock=lambda: self.now_us)

    def at(self, seconds: float) -> None:
        """Set the clock; it then stands still."""
        self.now_us = round((MIDNIGHT + seconds) * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Move the clock by that much exactly."""
        self.now_us += round(seconds * 1_000_000)

    def keys(self) -> int:
        """How many keys have a state."""
        return len(self.contents())

    def contents(self) -> dict[bytes, bytes]:
        """White-box: the states of all keys."""
        return {
            repr((place, key)).encode(): repr(state).encode()
            for place, space in self.backend._spaces.items()
            for key, state in space.states.items()
            if state is not None
        }


class ServerStore(Store):
    """A real server with a clock to step."""

    source = "redis"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin: Any = server.admin
        self.backend: RedisBackend = RedisBackend.from_url(server.url(), deadline=PATIENCE)
        self.at(0)

    def at(self, seconds: float) -> None:
        """Set the server's clock; it goes on from there."""
        self._set_offset(round((MIDNIGHT + seconds) * 1_000_000) - time.time_ns() // 1000)

    def advance(self, seconds: float) -> None:
        """Move the clock by that much, and by what really passes meanwhile."""
        self._set_offset(self._offset_us + round(seconds * 1_000_000))

    def _set_offset(self, offset_us: int) -> None:
        self._offset_us = offset_us
        self.server.set_clock_offset(offset_us)

    def keys(self) -> int:
        """How many keys the server has that are not past their expiry."""
        return len(self.contents())

    def contents(self) -> dict[bytes, bytes]:
        """The values of all keys."""
        values = {key: self.admin.get(key) for key in self.admin.scan_iter(count=1000)}
        return {key: value for key, value in values.items() if value is not None}

    def pttls(self) -> dict[bytes, int]:
        """Milliseconds until each key expires."""
        return {key: self.admin.pttl(key) for key in self.admin.scan_iter(count=1000)}
