"""A log becomes arrivals in order of time; what is no request is counted, kept to be shown, and never ends the run."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiolimit.cli.exits import CommandError, ExitCode
from aiolimit.cli.formats import FORMATS, FormatName
from aiolimit.cli.keys import KeyTemplate
from aiolimit.cli.reading import SHOWN, Columns, Log, read_log
from aiolimit.cli.source import MAX_LINE, Source
from tests.cli.support import START, any_time, line

START_US = int(START.timestamp()) * 1_000_000
BY_IP = Columns(KeyTemplate("ip"))


def read(text: str | bytes, name: FormatName = "auto", columns: Columns = BY_IP) -> Log:
    """The log that this text is."""
    return read_log(io.BytesIO(text if isinstance(text, bytes) else text.encode()), name, columns)


def test_arrivals_are_in_order_of_time_and_those_of_one_moment_as_they_were() -> None:
    """Lines older than one before them are counted."""
    log = read(line(5, "a") + line(3, "b") + line(5, "c") + line(4, "d") + line(9, "e"))
    assert [arrival.key for arrival in log.arrivals] == ["b", "d", "a", "c", "e"]
    assert [arrival.at_us - START_US for arrival in log.arrivals] == [3e6, 4e6, 5e6, 5e6, 9e6]
    assert log.out_of_order == 2
    assert log.span_us == 6_000_000


def test_zones_are_taken_into_account() -> None:
    """The same moment, written in two zones."""
    log = read(line(3600, "a", offset="+0100") + line(-3600, "b", offset="-0100"))
    assert [arrival.at_us - START_US for arrival in log.arrivals] == [0, 0]


def test_malformed_lines_are_counted_and_the_first_kept_with_number_and_reason() -> None:
    """Blank lines are not malformed, but they have a number."""
    log = read(line(0) + "\n" + "garbage\n" * 7 + "   \n" + line(1))
    assert len(log.arrivals) == 2
    assert log.malformed == 7
    assert len(log.bad_lines) == SHOWN
    assert log.bad_lines[0] == (3, "not in the common or combined log format", "garbage")


def test_a_line_that_is_not_utf8_counts_with_its_bytes_escaped() -> None:
    """In the path, and in the key itself."""
    log = read(line(0, path="/caf\xe9").encode("latin-1") + line(1, "a\xff").encode("latin-1"))
    assert log.malformed == 0
    assert log.arrivals[1].key == "a\\xff"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    """Neither becomes part of a field."""
    log = read(b"\xef\xbb\xbf" + (line(0) + line(1)).replace("\n", "\r\n").encode())
    assert (len(log.arrivals), log.malformed) == (2, 0)


def test_a_line_that_is_too_long_is_malformed_and_the_next_one_counts(tmp_path: Path) -> None:
    """It is not kept in memory as a whole."""
    path = tmp_path / "log"
    path.write_text(line(0) + line(1).rstrip() + " " + "x" * (2 * MAX_LINE) + "\n" + line(2))
    with Source(str(path)) as source:
        log = read_log(source, "auto", BY_IP)
    assert len(log.arrivals) == 2
    assert log.bad_lines == [(2, f"longer than {MAX_LINE} bytes", "")]


def test_json_lines_have_nested_fields_and_any_usual_name_for_the_time() -> None:
    """And each way in which a record is no request has its reason."""
    records = [
        {"ts": 1709251140.5, "request": {"remote_ip": "192.0.2.1"}, "size": 3},
        {"@timestamp": "2024-03-01T00:00:00Z", "request": {"remote_ip": "192.0.2.2"}, "size": 4.0},
        {"ts": 1709251140, "size": 3},
        {"request": {"remote_ip": "192.0.2.1"}, "size": 3},
        {"ts": True, "request": {"remote_ip": "192.0.2.1"}, "size": 3},
        {"ts": "x", "request": {"remote_ip": "192.0.2.1"}, "size": 3},
        {"ts": 0, "request": {"remote_ip": "192.0.2.1"}, "size": -3},
    ]
    text = "\n".join(map(json.dumps, records))
    log = read(text, columns=Columns(KeyTemplate("request.remote_ip"), cost="size"))
    assert log.format == "json"
    assert log.arrivals == [(1709251140500000, "192.0.2.1", 3), (1709251200000000, "192.0.2.2", 4)]
    assert [reason.partition(":")[0] for _, reason, _ in log.bad_lines] == [
        "no field 'request.remote_ip'",
        "no time",
        "the field 'ts' is no time, but 'True'",
        "time 'x' is neither 17/May/2015",
        "the field 'size' is no whole cost of 0 or more, but '-3'",
    ]


@pytest.mark.parametrize("name", ["combined", "common"])
def test_a_format_that_is_given_is_not_guessed(name: FormatName) -> None:
    """Of the two access formats each reads the other's lines; JSON in it is malformed."""
    log = read('{"time": 1, "ip": "a"}\n' * 3 + line(0), name)
    assert (log.format, len(log.arrivals), log.malformed) == (name, 1, 3)


def test_csv_skips_its_header_and_takes_the_columns_by_name() -> None:
    """The header counts as a line, but not as a request."""
    text = "path,when,who\n/,2024-02-29T23:59:00,u1\n/,2024-02-29T23:59:01,u2,more\n"
    log = read(text, columns=Columns(KeyTemplate("who"), time="when"))
    assert log.format == "csv"
    assert log.arrivals == [(START_US, "u1", 1)]
    assert log.bad_lines[0][:2] == (3, "4 columns where the header has 3")


@pytest.mark.parametrize("bad", ["", "NaN", "Infinity", "1e99", "0.5", "-1", "ten", "null"])
def test_a_cost_that_is_no_whole_number_is_malformed(bad: str) -> None:
    """As is one below zero, or too large to be one."""
    log = read(f"time,ip,cost\n1,a,{bad}\n2,a,5\n", columns=Columns(KeyTemplate("ip"), cost="cost"))
    assert (log.malformed, log.arrivals[0].cost) == (1, 5)


def test_no_bytes_in_an_access_log_are_a_cost_of_zero() -> None:
    """Servers write a dash for them."""
    log = read(line(0, size="-") + line(1, size="7"), columns=Columns(KeyTemplate("ip"), cost="bytes"))
    assert [arrival.cost for arrival in log.arrivals] == [0, 7]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (line(0), Columns(KeyTemplate("ip,users")), "--key 'users': no field of the combined log; there are ip, "),
        (line(0), Columns(KeyTemplate("ip"), time="at"), "--time-field 'at': no field"),
        (line(0), Columns(KeyTemplate("ip"), cost="tokens"), "--cost-field 'tokens': no field"),
        (
            '{"time": 1, "a": {"b": 1}}',
            Columns(KeyTemplate("ip")),
            "--key 'ip': no field of the json log; there are time, a.b",
        ),
        ("ip,at\n1,2", Columns(KeyTemplate("ip"), time="at", cost="c"), "--cost-field 'c'"),
        (
            '{"ip": 1}',
            Columns(KeyTemplate("ip")),
            "--time-field is needed: the json log has no time under a usual name",
        ),
    ],
)
def test_a_field_that_no_record_has_is_a_wrong_argument(text: str, columns: Columns, message: str) -> None:
    """Instead of a log in which every line is malformed; the message lists what there is."""
    with pytest.raises(CommandError) as caught:
        read(text, columns=columns)
    assert caught.value.code == ExitCode.USAGE
    assert message in str(caught.value)


def test_a_json_field_that_some_records_have_is_not_a_wrong_argument() -> None:
    """The records that lack it are malformed."""
    log = read('{"time": 1}\n{"time": 1, "user": "u"}\n{"time": 2, "user": ""}', columns=Columns(KeyTemplate("user")))
    assert (len(log.arrivals), log.malformed) == (1, 2)


def test_a_csv_without_a_header_that_can_be_used_cannot_be_read() -> None:
    """When CSV was asked for, nothing else is tried."""
    with pytest.raises(CommandError, match="no CSV header: the header names 'ip' twice") as caught:
        read("ip,ip,time\n", "csv")
    assert caught.value.code == ExitCode.UNREADABLE


pieces = st.sampled_from([line(0).encode(), b'{"time": 1, "ip": "a"}', b"time,ip", b"1,2", b'"', b"\xff\xfe", b"\x00"])


@any_time
@given(st.lists(st.lists(pieces | st.binary(max_size=20), max_size=3).map(b"".join)), st.sampled_from(FORMATS))
def test_any_bytes_give_requests_and_malformed_lines_or_a_wrong_argument(lines: list[bytes], name: FormatName) -> None:
    """Every line that is not blank is a request, is malformed, or is the header of a CSV."""
    text = b"\n".join(lines)
    try:
        log = read(text, name)
    except CommandError:
        return
    decoded = text.removeprefix(b"\xef\xbb\xbf").decode(errors="backslashreplace").split("\n")
    filled = sum(not (not each.rstrip("\r") or each.rstrip("\r").isspace()) for each in decoded)
    assert len(log.arrivals) + log.malformed == max(filled - (log.format == "csv"), 0)


# Where the bytes come from


@pytest.fixture
def log_file(tmp_path: Path) -> Callable[[bytes], str]:
    """Writes a file, and gives its path. The name says nothing of what is in it."""

    def write(content: bytes) -> str:
        path = tmp_path / "access.txt"
        path.write_bytes(content)
        return str(path)

    return write


def lines_of(name: str) -> list[bytes]:
    """All lines of a source."""
    with Source(name) as source:
        return list(source)


def test_gzip_is_recognised_by_its_content(log_file: Callable[[bytes], str]) -> None:
    """The name says nothing."""
    assert lines_of(log_file(gzip.compress(b"a\nb\n"))) == [b"a\n", b"b\n"]


def test_gzip_members_in_a_row_are_one_log(log_file: Callable[[bytes], str]) -> None:
    """As rotated logs become when they are joined."""
    assert lines_of(log_file(gzip.compress(b"a\n") + gzip.compress(b"b\n"))) == [b"a\n", b"b\n"]


def test_standard_input_may_be_gzip_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only looked into, not read, to find out."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(gzip.compress(b"a\n")))))
    assert lines_of("-") == [b"a\n"]


WHOLE = gzip.compress(b"".join(b"%d\n" % number for number in range(10_000)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WHOLE[:-3000], "cut off"),
        (WHOLE[:5000] + b"\0" * 100 + WHOLE[5100:], "broken gzip file"),
        (WHOLE[:-8] + b"\0" * 8, "broken gzip file"),
        (b"\x28\xb5\x2f\xfd...", "zstdcat"),
        (b"BZh9...", "bzcat"),
        (b"\xfd7zXZ\x00", "xzcat"),
    ],
)
def test_a_log_that_cannot_be_unpacked_is_unreadable(
    log_file: Callable[[bytes], str], content: bytes, reason: str
) -> None:
    """With the reason, and for other compressions the tool that unpacks them."""
    with pytest.raises(CommandError, match=reason) as caught:
        lines_of(log_file(content))
    assert caught.value.code == ExitCode.UNREADABLE


def test_how_far_it_is_read_is_told_in_bytes_of_the_file(log_file: Callable[[bytes], str]) -> None:
    """Those of the compressed file, whose size is known."""
    with Source(log_file(WHOLE)) as source:
        assert source.size == len(WHOLE)
        list(source)
        assert source.position() == len(WHOLE)
