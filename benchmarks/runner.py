"""Measures cases in turns, A B C A B C, so that a noisy neighbour hits all of them alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .server import ServerKind


class WrongAnswerError(AssertionError):
    """What was measured did not decide right: its speed means nothing."""


class SkippedError(Exception):
    """A question or a case that cannot be measured here; the text says why."""


def check(condition: object, what: str) -> None:
    """Refuse to measure wrong answers, under ``python -O`` as well."""
    if not condition:
        raise WrongAnswerError(what)


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise: the ratio of a row to a yardstick, or the row's value itself where there is no yardstick."""

    row: str
    most: float | None = None
    least: float | None = None
    versus: str | None = None


@dataclass(slots=True)
class Table:
    """What came out for one question: the values of each row, one for each repeat, in the same order for all rows."""

    title: str
    unit: str
    rows: dict[str, list[float]]
    yardstick: str | None = None
    goals: tuple[Goal, ...] = ()
    notes: list[str] = field(default_factory=list)

    def ratio(self, row: str, versus: str) -> float:
        """The median, over the repeats, of the ratio of two rows measured in the same repeat."""
        return statistics.median(a / b for a, b in zip(self.rows[row], self.rows[versus], strict=True))

    def outcome(self, goal: Goal) -> tuple[float, bool]:
        """What a goal came to, and whether it is met."""
        value = self.ratio(goal.row, goal.versus) if goal.versus else statistics.median(self.rows[goal.row])
        met = (goal.most is None or value <= goal.most) and (goal.least is None or value >= goal.least)
        return value, met


@dataclass(slots=True)
class Bench:
    """What a question is given."""

    kind: ServerKind = "redis"
    quick: bool = False
    repeats: int = 7
    peers: bool = False
    pin: bool = False

    def server(self) -> Server:
        """A server of its own for the question: a context manager."""
        return Server(self.kind, pin=self.pin)

    def size(self, full: int, quick: int) -> int:
        """How much to do in one repeat."""
        return quick if self.quick else full

    def measure(
        self,
        title: str,
        unit: str,
        cases: Mapping[str, Callable[[], float]],
        *,
        yardstick: str | None = None,
        goals: tuple[Goal, ...] = (),
        repeats: int | None = None,
    ) -> Table:
        """Run each case once to warm up, then all of them in turns."""
        for case in cases.values():
            case()
        rows: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(repeats or self.repeats):
            for name, case in cases.items():
                rows[name].append(case())
        return Table(title, unit, rows, yardstick, goals)


class Question(Protocol):
    """A module of `benchmarks.questions`."""

    def run(self, bench: Bench) -> Iterator[Table]:
        """Measure, a table at a time."""
        ...
