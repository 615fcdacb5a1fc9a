"""The answer to one question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from .policies import Policy

Source = Literal["redis", "memory", "local_deny", "fail_open", "fail_closed", "fallback", "disabled"]


class Decision(NamedTuple):
    """Whether a request may go now and, if not, when. Truthy when it may.

    A named tuple because a million of them are made a second; read it by attribute. All times are relative seconds,
    measured on the clock that decided.
    """

    allowed: bool
    """May it go now? The same as ``bool(decision)``."""
    key: str | bytes
    """The key as the caller gave it."""
    cost: int
    """The units asked for."""
    granted: int
    """The units charged: ``cost`` or 0, or anything between after ``acquire_up_to``."""
    limit: int
    """The most that the policy admits from idle."""
    remaining: int
    """How many units would fit right after this decision: ``0 <= remaining <= limit``, rounded down."""
    retry_after: float | None
    """Seconds until this cost fits if nobody else comes: 0.0 when allowed, None when it can never succeed."""
    reset_after: float
    """Seconds until the key is as fresh as one never used."""
    source: Source
    """Who decided: ``redis``, ``memory``, or how the answer came about without the store."""
    policy: Policy
    """The policy that decided."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def policies(self) -> tuple[Decision, ...]:
        """One entry per policy of the limiter, in its order; this decision itself when there is one policy."""
        return (self,)
