"""The log formats, without I/O: a line of text becomes named fields, or `Malformed` with the reason."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FormatName = Literal["auto", "combined", "common", "json", "csv"]
FORMATS: tuple[FormatName, ...] = ("auto", "combined", "common", "json", "csv")
TIME_FIELDS = ("time", "timestamp", "@timestamp", "ts", "datetime", "date", "time_local", "time_iso8601", "msec")
"""Where a JSON or CSV record is looked for its time, in this order, unless ``--time-field`` names it."""

_QUOTED = r'"(?P<{}>[^"\\]*+(?:\\.[^"\\]*+)*+)"'
_LINE = re.compile(
    r"(?:(?P<vhost>\S+:\d{1,5}) )?(?P<ip>(?!- )\S+) "
    # A user name may have spaces, but only where there is no ident: else a virtual host in front would pass for the ip.
    r"(?:- (?P<user>\S+(?: [^\[\s]\S*)*)|(?P<ident>\S+) (?P<ident_user>\S+)) "
    r"\[(?P<time>[^\]]{1,64})\] " + _QUOTED.format("request") + r" (?P<status>\d{3}|-) (?P<bytes>\d+|-)"
    r"(?: " + _QUOTED.format("referer") + " " + _QUOTED.format("user_agent") + r")?(?:\s.*)?",
    re.ASCII | re.DOTALL,
)
_COMMON_FIELDS = (
    *("ip", "ident", "user", "time", "request", "method", "target", "path", "protocol", "status", "bytes"),
    "vhost",
)
_DELIMITERS = ",;\t|"
_NAMED_DEPTH = 4


class Malformed(ValueError):
    """A line that is no request; the message is the reason."""


class LogFormat(Protocol):
    """How a line becomes fields."""

    name: str
    known: tuple[str, ...] | None
    """The names of all fields, where the format tells them beforehand."""

    def fields(self, line: str) -> Mapping[str, Any]:
        """The fields of one line; `Malformed` when it has none."""
        ...


class AccessLines:
    """The common and combined formats of Apache and nginx. ``path`` is the target without its query."""

    def __init__(self, name: Literal["common", "combined"]) -> None:
        self.name: str = name
        self.known: tuple[str, ...] | None = _COMMON_FIELDS
        if name == "combined":
            self.known = (*_COMMON_FIELDS, "referer", "user_agent")

    def fields(self, line: str) -> Mapping[str, Any]:
        """The fields of one line; what the line does not have, such as the path of a bad request, is left out."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise Malformed("not in the common or combined log format")
        fields = {name: value for name, value in match.groupdict().items() if value is not None}
        fields["user"] = fields.pop("ident_user", None) or fields["user"]
        fields.setdefault("ident", "-")
        parts = fields["request"].split(" ")
        if len(parts) >= 2 and parts[0]:
            fields["method"] = parts[0]
            if len(parts) > 2 and parts[-1].startswith("HTTP/"):
                fields["protocol"] = parts.pop()
            fields["target"] = " ".join(parts[1:])
            fields["path"] = fields["target"].partition("?")[0]
        return fields


class JsonLines:
    """One JSON object a line."""

    name: str = "json"
    known: tuple[str, ...] | None = None

    def fields(self, line: str) -> Mapping[str, Any]:
        """The members of the object."""
        try:
            record = json.loads(line)
        except ValueError as error:
            raise Malformed(f"not JSON: {error}") from None
        except RecursionError:
            raise Malformed("not JSON: nested too deep") from None
        if not _is_object(record):
            raise Malformed("JSON, but not an object")
        return record


class CsvLines:
    """Comma (or semicolon, tab, bar) separated values, one record a line; the first line names the fields."""

    name: str = "csv"

    def __init__(self, header: str) -> None:
        self._delimiter = max(_DELIMITERS, key=header.count)
        names = [name.strip() for name in self._split(header)]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise Malformed(f"the header names {min(repeated)!r} twice")
        self.known: tuple[str, ...] | None = tuple(names)

    def fields(self, line: str) -> Mapping[str, Any]:
        """The columns of one line, by the names of the header."""
        assert self.known is not None
        values = self._split(line)
        if len(values) != len(self.known):
            raise Malformed(f"{len(values)} columns where the header has {len(self.known)}")
        return dict(zip(self.known, values, strict=True))

    def _split(self, line: str) -> list[str]:
        try:
            records = list(csv.reader([line], delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise Malformed(f"not CSV: {error}") from None
        return records[0] if records else []


def lookup(fields: Mapping[str, Any], name: str) -> Any:
    """The field of that name; ``a.b`` also finds ``b`` in the object ``a``, and ``a.0`` the first of the list ``a``.

    Raises:
        Malformed: When there is none.
    """
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if _is_object(value) and part in value:
            value = value[part]
        elif _is_list(value) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise Malformed(f"no field {name!r}")
    return value


def field_names(fields: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The names that `lookup` finds, those of nested objects dotted."""
    names: list[str] = []
    for name, value in fields.items():
        if _is_object(value) and prefix.count(".") < _NAMED_DEPTH:
            names += field_names(value, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def detect(lines: Sequence[str], time_fields: Sequence[str] = TIME_FIELDS) -> FormatName:
    """The format of a log by its first lines; combined when it is none of them, so that each line gets its reason."""
    access = _readable(AccessLines("combined"), lines)
    objects = _readable(JsonLines(), lines)
    if len(objects) > len(access):
        return "json"
    if access:
        return "combined" if any("user_agent" in fields for fields in access) else "common"
    if lines and _is_header(lines[0], time_fields):
        return "csv"
    return "combined"


def make_format(name: FormatName, header: str) -> LogFormat:
    """The format of that name; a CSV takes its names from ``header``."""
    if name == "json":
        return JsonLines()
    if name == "csv":
        return CsvLines(header)
    return AccessLines("common" if name == "common" else "combined")


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _readable(log_format: LogFormat, lines: Iterable[str]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for line in lines:
        with contextlib.suppress(Malformed):
            found.append(log_format.fields(line))
    return found


def _is_header(line: str, time_fields: Sequence[str]) -> bool:
    try:
        names = CsvLines(line).known or ()
    except Malformed:
        return False
    return len(names) > 1 and any(name in names for name in time_fields)
