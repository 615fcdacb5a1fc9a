"""What a Redis backend counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..decision import Source


@dataclass(slots=True)
class Stats:
    """What a Redis backend has done since it was made."""

    decisions: int = 0
    """Questions that were sent."""
    calls: int = 0
    """Script calls that carried them."""
    script_loads: int = 0
    """Calls that had to carry the script's text, because the server did not know it."""
    timeouts: int = 0
    """Callers that had no answer within their deadline."""
    connections: int = 0
    """Connections opened."""
    failures: int = 0
    """Exchanges with the server, or attempts to connect, that count against the breaker."""
    overloads: int = 0
    """Questions turned away because too many were waiting."""
    not_asked: int = 0
    """Questions turned away because the breaker was open."""
    fail_open: int = 0
    """Decisions that the failure policy ``open`` admitted."""
    fail_closed: int = 0
    """Decisions that the failure policy ``closed`` refused."""
    fallback: int = 0
    """Decisions that the failure policy ``local`` took in this process."""

    def count_without(self, source: Source, decisions: int) -> None:
        """Add decisions that a failure policy made; ``source`` names the counter."""
        setattr(self, source, getattr(self, source) + decisions)
