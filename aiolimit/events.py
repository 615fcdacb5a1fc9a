"""What a backend tells about itself: its exchanges with the server, its breaker, and what was decided without it.

One event for each exchange, each change of the breaker, and each batch of decisions made without the server. A listener
is a callable that takes an event. It is called in the event loop, between decisions: it must be quick and must not
block. Pass listeners to the backend; `LogListener` is there unless you pass others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .breaker import State
    from .decision import Source
    from .errors import BackendError


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One write to the server and what came of it."""

    server: str
    """The server's address, without a password."""
    decisions: int
    """How many questions it carried."""
    calls: int
    """In how many script calls."""
    seconds: float
    """From the write to the last reply, or to the error."""
    error: BackendError | None
    """What went wrong, if anything did."""


@dataclass(frozen=True, slots=True)
class BreakerMoved:
    """The circuit breaker changed its state."""

    server: str
    """The server's address, without a password."""
    old: State
    new: State


@dataclass(frozen=True, slots=True)
class DecidedWithout:
    """Decisions that a failure policy took, because the server could not be asked."""

    server: str
    """The server's address, without a password."""
    limiter: str
    """The limiter's name."""
    source: Source
    """``fail_open``, ``fail_closed`` or ``fallback``."""
    decisions: int
    error: BackendError
    """Why."""


Event: TypeAlias = Exchanged | BreakerMoved | DecidedWithout
Listener: TypeAlias = Callable[[Event], None]


class LogListener:
    """Writes to the logger ``aiolimit``: each change of a breaker, and decisions without the server at a bounded rate.

    No key is ever logged.

    Args:
        every: Seconds between two lines about one limiter's decisions without the server. The first is logged at once.
        clock: Seconds that only go forward.
    """

    def __init__(self, every: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self._log = logging.getLogger("aiolimit")
        self._counts: Counter[tuple[str, Source]] = Counter()
        self._next: dict[tuple[str, Source], float] = {}

    def __call__(self, event: Event) -> None:
        """Log the event, if it is one to log now."""
        if isinstance(event, BreakerMoved):
            level = logging.WARNING if event.new == "open" else logging.INFO
            self._log.log(level, "%s: circuit breaker %s, was %s", event.server, event.new, event.old)
        elif isinstance(event, DecidedWithout):
            self._log_decisions(event)
        elif event.error is not None:
            self._log.debug("%s: %d decisions: %s", event.server, event.decisions, event.error)

    def _log_decisions(self, event: DecidedWithout) -> None:
        what = event.limiter, event.source
        self._counts[what] += event.decisions
        now = self._clock()
        if now >= self._next.get(what, now):
            self._next[what] = now + self._every
            count = self._counts.pop(what)
            self._log.warning(
                "%s: limiter %r: %d decisions %s: %s", event.server, event.limiter, count, event.source, event.error
            )
