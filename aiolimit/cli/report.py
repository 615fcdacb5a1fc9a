"""What a run has found, and the JSON object that says it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .times import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .reading import Arrival, Log
    from .tally import KeyTally, Tally


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a live run compares with memory."""

    url: str
    speed: float
    idle_skipped: float
    """How much of the log's time was left out because it changes nothing, in seconds."""
    seconds: float
    late_p50: float
    late_max: float
    memory_admitted: int
    """At the times of the log."""
    memory_admitted_as_arrived: int
    """At the times at which the server was really asked."""


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's figures."""

    tally: Tally
    live: Agreement | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say."""

    name: str
    key: str
    log: Log
    results: Sequence[Result]
    """One for each policy; at least one."""
    top: int
    """How many of the worst keys are listed."""

    def to_json(self) -> str:
        """Exactly one object: the log, and the first policy's figures; when comparing, all of them as ``policies``."""
        arrivals = self.log.arrivals
        about = {
            "log": self.name,
            "format": self.log.format,
            "key": self.key,
            "from": format_time(arrivals[0].at_us) if arrivals else None,
            "to": format_time(arrivals[-1].at_us) if arrivals else None,
            "out_of_order": self.log.out_of_order,
            "malformed_lines": [line._asdict() for line in self.log.bad_lines],
        }
        figures = [self._figures(result) for result in self.results]
        more = {"policies": figures} if len(figures) > 1 else {}
        return json.dumps({**about, **figures[0], **more}, indent=2)

    def worst(self, tally: Tally) -> list[KeyTally]:
        """The keys to list: the worst, of those that were refused at all."""
        return [each for each in tally.by_key[: self.top] if each.refused]

    def _figures(self, result: Result) -> dict[str, Any]:
        tally = result.tally
        figures: dict[str, Any] = {
            "policy": tally.policy,
            "requests": tally.requests,
            "admitted": tally.admitted,
            "refused": tally.refused,
            "refused_share": tally.refused_share,
            "never": tally.never,
            "units": tally.units,
            "units_admitted": tally.units_admitted,
            "keys": len(tally.by_key),
            "keys_refused": tally.keys_refused,
            "malformed": self.log.malformed,
            "first_refused": _first_refused(tally.first_refused),
            "wait": asdict(tally.waits),
            "worst_keys": [
                {"key": each.key, "requests": each.requests, "admitted": each.admitted, "refused": each.refused}
                for each in self.worst(tally)
            ],
        }
        if result.live is not None:
            figures["live"] = asdict(result.live)
        return figures


def _first_refused(arrival: Arrival | None) -> dict[str, Any] | None:
    return None if arrival is None else {"time": format_time(arrival.at_us), "key": arrival.key}
