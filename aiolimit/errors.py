"""Everything this package raises.

::

    AiolimitError
    ├── PolicyError          a policy, or a cost it can never admit (also a ValueError)
    ├── RateLimitExceeded    ``acquire`` could not be in time; carries the decision
    └── BackendError         the store answered with an error that only a person can mend
        └── BackendUnavailable   the store did not answer: an outage, not a mistake
            ├── BackendTimeout      no answer within the deadline (also a TimeoutError)
            ├── BackendClosed       closed before the answer came
            ├── CircuitOpen         not asked: the circuit breaker is open
            └── BackendOverloaded   this process asked for more than it may have waiting

`BackendUnavailable` and its children are what ``failure="open"`` and ``failure="closed"`` turn into decisions; a bare
`BackendError` always reaches the caller. Wrong types and values of a key or a cost are plain ``TypeError`` and
``ValueError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Decision


class AiolimitError(Exception):
    """The root of every error of this package."""


class PolicyError(AiolimitError, ValueError):
    """A policy that makes no sense, or a cost that its policy can never admit."""


class RateLimitExceeded(AiolimitError):
    """``acquire`` could not be admitted within its timeout.

    ``decision`` is the refusal: its ``retry_after`` tells how long the wait would have been.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message)
        self.decision = decision

    def __reduce__(self) -> tuple[type[RateLimitExceeded], tuple[str, Decision]]:
        return type(self), (str(self), self.decision)


class BackendError(AiolimitError):
    """The store refused in a way that waiting does not mend: a missing right, a foreign value, a broken setting."""


class BackendUnavailable(BackendError):
    """The store gave no answer: refused, dropped, overloaded or still loading."""


class BackendTimeout(BackendUnavailable, TimeoutError):
    """The store gave no answer within the deadline."""


class BackendClosed(BackendUnavailable):
    """The backend was closed before the answer came."""


class CircuitOpen(BackendUnavailable):
    """The store was not asked, because it failed repeatedly a moment ago."""


class BackendOverloaded(BackendUnavailable):
    """More decisions are waiting in this process than the backlog or the connection pool allows."""
