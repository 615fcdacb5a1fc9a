"""From a log to the arrivals in it: when each request came, its key and its cost, in order of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from .exits import CommandError, ExitCode, wrong_argument
from .formats import TIME_FIELDS, Malformed, detect, field_names, lookup, make_format
from .source import MAX_LINE
from .times import TimeError, parse_number, parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .formats import FormatName, LogFormat
    from .keys import KeyTemplate

SAMPLE_LINES = 100
"""How many lines decide the format, and whether a JSON log has a field at all."""
SHOWN = 5
"""How many malformed lines are kept to be shown."""
_SHOWN_CHARACTERS = 120
_COST_DIGITS = 15


class Arrival(NamedTuple):
    """One request of the log."""

    at_us: int
    key: str
    cost: int


class BadLine(NamedTuple):
    """A line that is no request."""

    line: int
    reason: str
    text: str


@dataclass(slots=True)
class Log:
    """What a log holds."""

    format: str
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    malformed: int = 0
    bad_lines: list[BadLine] = field(default_factory=list[BadLine])
    """The first `SHOWN` malformed lines."""
    out_of_order: int = 0
    """Lines that are older than one before them."""

    @property
    def span_us(self) -> int:
        """From the first request to the last."""
        return self.arrivals[-1].at_us - self.arrivals[0].at_us if self.arrivals else 0


@dataclass(frozen=True, slots=True)
class Columns:
    """What of a record is used: the arguments ``--key``, ``--time-field`` and ``--cost-field``."""

    key: KeyTemplate
    time: str | None = None
    cost: str | None = None

    @property
    def time_names(self) -> tuple[str, ...]:
        """Where the time may be, in order."""
        return TIME_FIELDS if self.time is None else (self.time,)

    def arrival(self, fields: Mapping[str, Any]) -> Arrival:
        """The request that a record is; `Malformed` when it is none."""
        at_us = self._time(fields)
        return Arrival(at_us, self.key.key(fields), 1 if self.cost is None else _cost(fields, self.cost))

    def _time(self, fields: Mapping[str, Any]) -> int:
        names = self.time_names
        name = names[0] if len(names) == 1 else next((name for name in names if name in fields), None)
        if name is None:
            raise Malformed(f"no time: none of the fields {', '.join(names)}; name it with --time-field")
        value = lookup(fields, name)
        try:
            if isinstance(value, str):
                return parse_text(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return parse_number(value)
        except TimeError as error:
            raise Malformed(str(error)) from None
        raise Malformed(f"the field {name!r} is no time, but {str(value)[:40]!r}")

    def check(self, log_format: LogFormat, sample: list[str]) -> None:
        """Refuse names that no record has, before the whole log turns out malformed."""
        known = log_format.known or _names_of(log_format, sample)
        if not known:
            return
        wanted = [("--key", name) for name in self.key.fields]
        wanted += [("--time-field", self.time)] * (self.time is not None)
        wanted += [("--cost-field", self.cost)] * (self.cost is not None)
        for argument, name in wanted:
            if name not in known and not (log_format.known is None and _is_nested(name, known)):
                what = f"no field of the {log_format.name} log; there are {', '.join(known)}"
                raise wrong_argument(argument, name, what)
        if self.time is None and not any(name in known for name in TIME_FIELDS):
            what = f"the {log_format.name} log has no time under a usual name; there are {', '.join(known)}"
            raise CommandError(ExitCode.USAGE, f"--time-field is needed: {what}")


def read_log(
    lines: Iterable[bytes], name: FormatName, columns: Columns, advance: Callable[[], None] | None = None
) -> Log:
    """Read all lines, and put the requests in order of time; those of one moment stay in the order of the log.

    Args:
        lines: The log.
        name: Its format, or ``auto``.
        columns: What of each record is used.
        advance: Called now and then.

    Raises:
        CommandError: When a column is not in the log at all.
    """
    numbered = _numbered(lines)
    head = list(islice(numbered, SAMPLE_LINES))
    sample = [line for _, line in head if line]
    if name == "auto":
        name = detect(sample, columns.time_names)
    try:
        log_format = make_format(name, head[0][1] if head else "")
    except Malformed as error:
        raise CommandError(ExitCode.UNREADABLE, f"ACCESS_LOG: the first line is no CSV header: {error}") from None
    columns.check(log_format, sample)
    log = Log(log_format.name)
    _collect(log, log_format, columns, chain(head[name == "csv" :], numbered), advance or _nothing)
    log.arrivals.sort(key=attrgetter("at_us"))
    return log


def _collect(
    log: Log, log_format: LogFormat, columns: Columns, lines: Iterable[tuple[int, str]], advance: Callable[[], None]
) -> None:
    newest = 0
    for number, line in lines:
        try:
            arrival = _arrival(columns, log_format, line)
        except Malformed as error:
            log.malformed += 1
            if log.malformed <= SHOWN:
                log.bad_lines.append(BadLine(number, str(error), line[:_SHOWN_CHARACTERS]))
            continue
        log.out_of_order += arrival.at_us < newest
        newest = max(newest, arrival.at_us)
        log.arrivals.append(arrival)
        if not number % 1000:
            advance()


def _arrival(columns: Columns, log_format: LogFormat, line: str) -> Arrival:
    if not line:
        raise Malformed(f"longer than {MAX_LINE} bytes")
    return columns.arrival(log_format.fields(line))


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, as text; bytes that are not UTF-8 show as escapes. A line too long is empty."""
    for number, raw in enumerate(lines, 1):
        if len(raw) > MAX_LINE:
            yield number, ""
            continue
        line = raw.decode(errors="backslashreplace").rstrip("\r\n")
        if number == 1:
            line = line.removeprefix("\ufeff")
        if line and not line.isspace():
            yield number, line


def _cost(fields: Mapping[str, Any], name: str) -> int:
    value = lookup(fields, name)
    if value == "-":  # how access logs write no bytes
        return 0
    try:
        cost = Decimal(str(value))
    except (InvalidOperation, ValueError):
        cost = Decimal(-1)
    if not cost.is_finite() or cost < 0 or cost.adjusted() > _COST_DIGITS or cost != cost.to_integral_value():
        raise Malformed(f"the field {name!r} is no whole cost of 0 or more, but {str(value)[:40]!r}")
    return int(cost)


def _names_of(log_format: LogFormat, sample: list[str]) -> list[str]:
    names: dict[str, None] = {}
    for line in sample:
        try:
            names.update(dict.fromkeys(field_names(log_format.fields(line))))
        except Malformed:
            continue
    return list(names)


def _is_nested(name: str, known: Iterable[str]) -> bool:
    """Is it within, or does it lead to, one of the known names?"""
    return any(name.startswith(f"{each}.") or each.startswith(f"{name}.") for each in known)


def _nothing() -> None:
    pass
