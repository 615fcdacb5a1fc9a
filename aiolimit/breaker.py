"""The circuit breaker: what keeps callers from waiting for a server that does not answer.

Theory of operation. A pure state machine; nobody asks it to wait, and time is passed in, in seconds of any one clock.

::

    closed ──(failures in a row, or too large a share of them)──▶ open ──(its time is over)──▶ half-open
      ▲                                                            ▲                              │
      └────────────────────(enough successes)─────────────────────┴───────────(a failure)────────┘

Who wants to ask the server first asks `admits`. Who is about to send takes the `generation` along, and reports with it
whether it went well. A report whose generation has passed changes nothing: it belongs to a state that is over. In
half-open exactly one probe is out at a time; if nothing is heard of it, another one may go after ``open_for`` seconds,
or what a call may take if that is longer: a lost probe never keeps the breaker where it is.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["closed", "open", "half_open"]

_MOST_DOUBLINGS = 30
_SLICES = 10
"""Into how many parts the time window is cut; the oldest leaves as a whole."""


class CircuitBreaker:
    """Opens when the server fails repeatedly, and lets one probe at a time find out whether it is back.

    Args:
        failures: Opens after this many failures in a row.
        open_for: Seconds until the first probe. Each failed probe doubles it, and up to a fifth is added at random, so
            that processes do not probe in step.
        max_open_for: The longest time between two probes, in seconds; ``open_for`` where that is longer.
        failure_rate: Opens when at least this share of the calls in ``window`` failed; None for never.
        slow_rate: Opens when at least this share of the calls in ``window`` was slow; None for never.
        slow_after: How many seconds make a call slow; needed with ``slow_rate``.
        window: Seconds that the two rates look back.
        minimum: The fewest calls in ``window`` for a rate to mean anything.
        successes: How many probes must succeed in a row before it closes.
        jitter: A source of numbers from 0 to 1; for tests.

    Raises:
        ValueError: When an argument is out of its range.
    """

    def __init__(
        self,
        failures: int = 5,
        open_for: float = 1.0,
        *,
        max_open_for: float = 10.0,
        failure_rate: float | None = 0.5,
        slow_rate: float | None = None,
        slow_after: float | None = None,
        window: float = 10.0,
        minimum: int = 20,
        successes: int = 1,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        for name, count in (("failures", failures), ("minimum", minimum), ("successes", successes)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more, not {count!r}")
        for name, seconds in (("open_for", open_for), ("max_open_for", max_open_for), ("window", window)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise ValueError(f"{name} must be a number of seconds, more than 0, not {seconds!r}")
        for name, rate in (("failure_rate", failure_rate), ("slow_rate", slow_rate)):
            if rate is not None and not 0 < rate <= 1:
                raise ValueError(f"{name} must be more than 0 and at most 1, or None, not {rate!r}")
        if slow_after is not None and not 0 < slow_after < math.inf:
            raise ValueError(f"slow_after must be a number of seconds, more than 0, or None, not {slow_after!r}")
        if (slow_rate is None) != (slow_after is None):
            raise ValueError("slow_rate and slow_after go together: give both or neither")
        self._failures = failures
        self._open_for = open_for
        self._max_open_for = max(max_open_for, open_for)
        self._failure_rate = failure_rate
        self._slow_rate = slow_rate
        self._slow_after = slow_after
        self._window = window
        self._minimum = minimum
        self._successes = successes
        self._jitter = jitter
        self._lock = threading.RLock()  # event loops of several threads may share it
        self._state: State = "closed"
        self._forced = False
        self._disabled = False
        self._generation = 0
        self._in_a_row = 0
        self._probed = 0  # probes that succeeded since it turned half-open
        self._opened = 0  # times in a row without closing
        self._next_probe = 0.0
        self._slices: deque[list[float]] = deque(maxlen=_SLICES)  # [start, calls, failed, slow]
        self.on_transition: Callable[[State, State], None] | None = None
        """Called with the old and the new state, synchronously. For the backend that owns the breaker."""

    def __repr__(self) -> str:
        how = " disabled" if self._disabled else " forced" if self._forced else ""
        return f"<CircuitBreaker {self._state}{how} failures={self._in_a_row}/{self._failures}>"

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"`` or ``"half_open"``. An open breaker turns half-open when it is next asked."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether everybody may ask the server."""
        return self._state == "closed"

    @property
    def generation(self) -> int:
        """Which stretch of its life it is in. Take it before a call and report with it."""
        return self._generation

    def admits(self, now: float, patience: float = 0.0) -> bool:
        """Whether the server may be asked now. In half-open, the one who hears yes is the probe.

        Args:
            now: The time.
            patience: How long a call may take, in seconds: a probe is not taken for lost before.
        """
        if self._state == "closed":
            return True
        with self._lock:
            if self._forced or now < self._next_probe:
                return False
            if self._state == "open":
                self._move("half_open")
            else:
                self._generation += 1  # the probe before this one is lost; its report would come too late
            self._next_probe = now + max(self._open_for, patience)
            return True

    def retry_in(self, now: float) -> float:
        """Seconds until it next admits anybody, if nothing happens before."""
        return 0.0 if self._state == "closed" else max(self._next_probe - now, 0.0)

    def succeeded(self, generation: int, now: float, seconds: float = 0.0) -> None:
        """Report a call that was answered, after so many ``seconds``."""
        with self._lock:
            if generation != self._generation or self._disabled:
                return
            self._in_a_row = 0
            if self._state == "half_open":
                self._probed += 1
                if self._probed >= self._successes:
                    self._move("closed")
                else:
                    self._next_probe = now
            elif self._state == "closed":
                slow = self._slow_after is not None and seconds >= self._slow_after
                self._count(now, failed=False, slow=slow)

    def failed(self, generation: int, now: float) -> None:
        """Report a call that was not answered."""
        with self._lock:
            if generation != self._generation or self._disabled:
                return
            self._in_a_row += 1
            if self._state == "half_open":
                self._open(now)
            elif self._state == "closed":
                self._count(now, failed=True, slow=False)
                if self._state == "closed" and self._in_a_row >= self._failures:
                    self._open(now)

    def force_open(self) -> None:
        """Stay open until `reset`, whatever is reported."""
        with self._lock:
            self._forced, self._disabled = True, False
            self._next_probe = math.inf
            self._move("open")

    def disable(self) -> None:
        """Stay closed until `reset`, whatever is reported."""
        with self._lock:
            self._forced, self._disabled = False, True
            self._move("closed")

    def reset(self) -> None:
        """Close, and forget all that was reported or forced."""
        with self._lock:
            self._forced = self._disabled = False
            self._move("closed")

    def copy(self) -> CircuitBreaker:
        """A closed one with the same settings, for another server."""
        return CircuitBreaker(
            self._failures,
            self._open_for,
            max_open_for=self._max_open_for,
            failure_rate=self._failure_rate,
            slow_rate=self._slow_rate,
            slow_after=self._slow_after,
            window=self._window,
            minimum=self._minimum,
            successes=self._successes,
            jitter=self._jitter,
        )

    def _open(self, now: float) -> None:
        stay = min(self._open_for * 2.0 ** min(self._opened, _MOST_DOUBLINGS), self._max_open_for)
        self._opened += 1
        self._next_probe = now + stay * (1 + self._jitter() / 5)
        self._move("open")

    def _move(self, state: State) -> None:
        old, self._state = self._state, state
        self._generation += 1
        self._probed = 0
        if state == "closed":
            self._in_a_row = self._opened = 0
            self._slices.clear()
        if old != state and self.on_transition is not None:
            self.on_transition(old, state)

    def _count(self, now: float, *, failed: bool, slow: bool) -> None:
        """Note a call of the closed state, and open when a rate is reached."""
        if self._failure_rate is None and self._slow_rate is None:
            return
        slices = self._slices
        if not slices or now - slices[-1][0] >= self._window / _SLICES:
            slices.append([now, 0, 0, 0])
        newest = slices[-1]
        newest[1] += 1
        newest[2] += failed
        newest[3] += slow
        while slices[0][0] <= now - self._window:
            slices.popleft()
        calls = sum(part[1] for part in slices)
        if calls < self._minimum:
            return
        failure_share = sum(part[2] for part in slices) / calls
        slow_share = sum(part[3] for part in slices) / calls
        if (self._failure_rate is not None and failure_share >= self._failure_rate) or (
            self._slow_rate is not None and slow_share >= self._slow_rate
        ):
            self._open(now)
