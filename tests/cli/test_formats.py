"""A line becomes the fields it has, or is malformed with the reason; nothing else ever happens."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiolimit.cli.formats import (
    AccessLines,
    CsvLines,
    JsonLines,
    LogFormat,
    Malformed,
    detect,
    field_names,
    lookup,
    make_format,
)
from tests.cli.support import any_time

TIME = "[29/Feb/2024:12:00:00 +0000]"
COMBINED = f'192.0.2.7 - alice {TIME} "GET /a/b?q=1 HTTP/1.1" 200 12 "https://example.org/" "Mozilla/5.0"'
COMMON = f'192.0.2.7 - - {TIME} "GET / HTTP/1.1" 304 -'


def test_a_combined_line_has_all_its_fields() -> None:
    """The request is taken apart, and the path has no query."""
    assert AccessLines("combined").fields(COMBINED) == {
        "ip": "192.0.2.7",
        "ident": "-",
        "user": "alice",
        "time": "29/Feb/2024:12:00:00 +0000",
        "request": "GET /a/b?q=1 HTTP/1.1",
        "method": "GET",
        "target": "/a/b?q=1",
        "path": "/a/b",
        "protocol": "HTTP/1.1",
        "status": "200",
        "bytes": "12",
        "referer": "https://example.org/",
        "user_agent": "Mozilla/5.0",
    }


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (COMMON, "bytes", "-"),
        (COMBINED + ' "203.0.113.9" 0.012', "user_agent", "Mozilla/5.0"),
        (COMBINED.replace("192.0.2.7", "2001:db8::7"), "ip", "2001:db8::7"),
        (COMBINED.replace("192.0.2.7", "::ffff:192.0.2.7"), "ip", "::ffff:192.0.2.7"),
        (COMBINED.replace("Mozilla/5.0", r"say \"hi\" \\"), "user_agent", r"say \"hi\" \\"),
        (COMBINED.replace("/a/b?q=1", r"/\"x\""), "path", r"/\"x\""),
        (COMBINED.replace("/a/b?q=1", "/with space"), "path", "/with space"),
        (COMBINED.replace(" HTTP/1.1", ""), "path", "/a/b"),
        (COMBINED.replace("- alice", "- alice in wonderland"), "user", "alice in wonderland"),
        (COMBINED.replace("- alice", "ident alice"), "ident", "ident"),
        (COMBINED.replace("- alice", "ident alice"), "user", "alice"),
        ("example.org:443 " + COMBINED, "vhost", "example.org:443"),
        ("example.org:443 " + COMBINED, "ip", "192.0.2.7"),
        ("example.org:443 2001:db8::7 - a b " + COMMON[14:], "user", "a b"),
        ("2001:db8::7 - a b " + COMMON[14:], "ip", "2001:db8::7"),
        (COMBINED.replace("GET /a/b?q=1 HTTP/1.1", r"\x16\x03\x01"), "request", r"\x16\x03\x01"),
        (COMBINED.replace("GET /a/b?q=1 HTTP/1.1", ""), "request", ""),
    ],
)
def test_access_lines_as_servers_write_them(line: str, field: str, value: str) -> None:
    """IPv6, escaped quotes, users with spaces, virtual hosts, further fields at the end, and requests that are none."""
    assert AccessLines("combined").fields(line)[field] == value


def test_a_request_that_is_none_has_no_path() -> None:
    """A field that a line does not have is missed only when it is asked for."""
    fields = AccessLines("combined").fields(COMBINED.replace("GET /a/b?q=1 HTTP/1.1", "-"))
    with pytest.raises(Malformed, match="no field 'path'"):
        lookup(fields, "path")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        COMBINED[:40],
        COMBINED[:60],
        COMBINED.replace('" 200', " 200"),
        COMBINED.replace(TIME, ""),
        "- " * 30,
    ],
)
def test_a_line_of_another_form_is_malformed(line: str) -> None:
    """Cut off, without its time, or something else altogether."""
    with pytest.raises(Malformed, match="not in the common or combined log format"):
        AccessLines("combined").fields(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("12", "not an object"),
        ('{"a": 1} x', "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": ' + "1" * 5000 + "}", "not JSON"),
    ],
)
def test_a_line_that_is_no_json_object_is_malformed(line: str, reason: str) -> None:
    """Other JSON, more than JSON, and what the parser itself gives up on."""
    with pytest.raises(Malformed, match=reason):
        JsonLines().fields(line)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_takes_its_names_and_its_separator_from_the_header(delimiter: str) -> None:
    """Quoted fields may hold the separator and quotes."""
    log_format = CsvLines(delimiter.join(["time", " ip ", "path"]))
    assert log_format.known == ("time", "ip", "path")
    assert log_format.fields(delimiter.join(["1", f'"a{delimiter}""b"""', "/"])) == {
        "time": "1",
        "ip": f'a{delimiter}"b"',
        "path": "/",
    }


@pytest.mark.parametrize(
    ("line", "reason"), [("1,2", "2 columns where the header has 3"), ("1,2,3,4", "4 columns"), ('1,2,"3', "not CSV")]
)
def test_a_csv_line_that_does_not_fit_the_header_is_malformed(line: str, reason: str) -> None:
    """Too few, too many, or a quote that never ends."""
    with pytest.raises(Malformed, match=reason):
        CsvLines("time,ip,path").fields(line)


def test_a_csv_header_with_a_name_twice_is_refused() -> None:
    """It would not be known which of the two columns is meant."""
    with pytest.raises(Malformed, match="'ip' twice"):
        CsvLines("ip,time,ip")


def test_nested_fields_are_found_by_dotted_names() -> None:
    """A name with a dot in it comes first; what is not there is malformed."""
    fields = {"a": {"b": {"c": 1}, "list": ["x", {"y": 2}]}, "a.d": 3}
    assert [lookup(fields, name) for name in ("a.b.c", "a.d", "a.list.0", "a.list.1.y")] == [1, 3, "x", 2]
    assert field_names(fields) == ["a.b.c", "a.list", "a.d"]
    for missing in ("b", "a.c", "a.b.c.d", "a.list.2", "a.list.x"):
        with pytest.raises(Malformed, match="no field"):
            lookup(fields, missing)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([COMBINED], "combined"),
        ([COMMON, COMMON], "common"),
        ([COMMON, COMBINED], "combined"),
        (["garbage", COMMON], "common"),
        (['{"time": 1}', "garbage"], "json"),
        (["time,ip", "1,2"], "csv"),
        (["ip;@timestamp;x", "1;2;3"], "csv"),
        (["hello, world", "good, bye"], "combined"),
        ([], "combined"),
        (['ip,"time'], "combined"),
    ],
)
def test_the_format_is_told_by_the_first_lines(lines: list[str], name: str) -> None:
    """By what most of them are; combined when they are nothing known."""
    assert detect(lines) == name


def test_a_csv_is_known_by_the_time_field_that_was_named() -> None:
    """A header is one that has a time, under a usual name or the given one."""
    assert detect(["when,ip", "1,2"], ["when"]) == "csv"


FORMATS: list[LogFormat] = [AccessLines("combined"), JsonLines(), CsvLines("time,ip"), make_format("csv", "a\tb\tc")]
values = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3))
pieces = st.sampled_from(
    [*COMBINED.split(" "), '"', '\\"', "[", "]", "- ", ",", "{", "}", "\x00", "\x1b[31m", "\udc80"]
)


@any_time
@given(
    st.text()
    | st.lists(pieces).map(" ".join)
    | st.lists(pieces).map("".join)
    | st.dictionaries(st.text(), values).map(json.dumps)
)
@example("example.org:443 " * 5 + COMBINED)
@example('"' * 1000)
@example("\\" * 1001 + '"')
@example("a:1" * 20_000)
@example("1.2.3.4 - " + "a " * 20_000)
@example("1.2.3.4 - a [" * 5_000)
def test_no_line_does_anything_but_give_fields_or_a_reason(text: str) -> None:
    """No other exception, and none of the long lines takes more than linear time."""
    for log_format in FORMATS:
        with contextlib.suppress(Malformed):
            assert all(isinstance(name, str) for name in log_format.fields(text))
