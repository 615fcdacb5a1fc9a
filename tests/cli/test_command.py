"""The command as it is run: what it prints, counted by models of its own, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import aiolimit as package
from aiolimit.cli.exits import ExitCode
from tests.support import REPOSITORY

from .support import EXAMPLE, Model, Request, aiolimit, bucket, example_requests, fixed_window, line, sliding_log

POLICY = ("--policy", "30/minute burst 10")
BRUTE_FORCE = bucket(30, 60, 10)


def found(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    done = aiolimit("simulate", *arguments, "--json", stdin=stdin)
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def counts(model: Model, requests: list[Request]) -> dict[str, int]:
    """The totals by a model."""
    decided = model(requests)
    keys = len({key for _, key, _ in requests})
    refused = len({key for (_, key, _), admitted in zip(requests, decided, strict=True) if not admitted})
    return {
        "requests": len(requests),
        "admitted": sum(decided),
        "refused": len(decided) - sum(decided),
        "keys": keys,
        "keys_refused": refused,
    }


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """What the example gives."""
    return found(EXAMPLE, *POLICY)


def test_the_totals_of_the_example_are_the_models() -> None:
    """The whole way: file, format, order of time, decisions, totals, the worst key and the first refusal."""
    requests = example_requests()
    decided = BRUTE_FORCE(requests)
    refusals = [request for request, admitted in zip(requests, decided, strict=True) if not admitted]
    worst, times = Counter(key for _, key, _ in refusals).most_common(1)[0]
    result = found(EXAMPLE, *POLICY, "--key", "ip")
    assert {**result, **counts(BRUTE_FORCE, requests)} == result
    assert result["worst_keys"][0] == {
        "key": worst,
        "requests": sum(key == worst for _, key, _ in requests),
        "admitted": sum(key == worst for _, key, _ in requests) - times,
        "refused": times,
    }
    assert result["first_refused"]["key"] == refusals[0][1]
    assert result["refused_share"] == len(refusals) / len(requests)
    assert result["malformed"] == 0


def test_the_json_is_one_object_with_these_fields() -> None:
    """For scripts: names and types stay."""
    result = found(EXAMPLE, *POLICY, "--top", "1")
    assert {name: type(value) for name, value in result.items()} == {
        "log": str,
        "format": str,
        "key": str,
        "from": str,
        "to": str,
        "out_of_order": int,
        "malformed_lines": list,
        "policy": str,
        "requests": int,
        "admitted": int,
        "refused": int,
        "refused_share": float,
        "never": int,
        "units": int,
        "units_admitted": int,
        "keys": int,
        "keys_refused": int,
        "malformed": int,
        "first_refused": dict,
        "wait": dict,
        "worst_keys": list,
    }
    assert result["wait"].keys() == {"waiting", "p50", "p95", "longest"}
    assert len(result["worst_keys"]) == 1


def test_compared_policies_stand_side_by_side() -> None:
    """Each has what it would have alone; at the top are the first one's figures."""
    texts = ["30/minute burst 10", "5/10s fixed", "5/10s log"]
    models = [BRUTE_FORCE, fixed_window(5, 10), sliding_log(5, 10)]
    result = found(EXAMPLE, "--policy", texts[0], "--compare", texts[1], "--compare", texts[2])
    assert [each["policy"] for each in result["policies"]] == texts
    requests = example_requests()
    for each, model in zip(result["policies"], models, strict=True):
        assert {**each, **counts(model, requests)} == each
        assert each["malformed"] == 0
    assert {**result, **result["policies"][0]} == result


def test_the_second_column_shows_the_difference() -> None:
    """So that nobody has to subtract."""
    done = aiolimit("simulate", EXAMPLE, *POLICY, "--compare", "60/minute burst 30", "--top", "0")
    shown = dict(re.split(r"  +", each, maxsplit=1) for each in done.stdout.splitlines() if "  " in each)
    first, second = (counts(bucket(rate, 60, burst), example_requests()) for rate, burst in ((30, 10), (60, 30)))
    difference = second["admitted"] - first["admitted"]
    assert shown["admitted"].split() == [str(first["admitted"]), str(second["admitted"]), f"(+{difference})"]
    assert shown["refused"].split() == [str(first["refused"]), str(second["refused"]), f"(-{difference})"]
    assert shown["requests"].split() == ["605", "605", "(=)"]
    assert "worst keys" not in done.stdout


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("through", ["stdin", "file"])
def test_the_same_log_gives_the_same_figures_however_it_comes(
    pack: Any, through: str, tmp_path: Path, example: dict[str, Any]
) -> None:
    """Plain or gzip, from a file of any name or through a pipe."""
    content = pack(EXAMPLE.read_bytes())
    path = tmp_path / "log"
    path.write_bytes(content)
    result = found(path, *POLICY) if through == "file" else found("-", *POLICY, stdin=content)
    assert {**result, "log": ""} == {**example, "log": ""}


def test_the_order_of_the_lines_does_not_matter(example: dict[str, Any]) -> None:
    """They are put in order of time."""
    backwards = b"".join(reversed(EXAMPLE.read_bytes().splitlines(keepends=True)))
    result = found("-", *POLICY, stdin=backwards)
    assert result["out_of_order"] != example["out_of_order"]
    assert {**result, **counts(BRUTE_FORCE, example_requests())} == result


def test_every_format_says_the_same() -> None:
    """The same requests as combined, common, JSON lines and CSV; found out, and named."""
    seconds = [0, 0, 1, 1, 1, 30, 31, 90, 90, 90, 90]
    combined = "".join(line(at, path=f"/{at}") for at in seconds)
    logs = {
        "combined": combined,
        "common": re.sub(r' "-" "test/1.0"', "", combined),
        "json": "".join(json.dumps({"time": 1_700_000_000 + at, "ip": "192.0.2.1"}) + "\n" for at in seconds),
        "csv": "ip,time\n" + "".join(f"192.0.2.1,{(1_700_000_000 + at) * 1000}\n" for at in seconds),
    }
    expected = counts(bucket(2, 60, 3), [(Fraction(at), "", 1) for at in seconds])
    for name, log in logs.items():
        result = found("-", "--policy", "2/minute burst 3", stdin=log.encode())
        assert {**result, **expected, "format": name} == result


def test_a_cost_field_charges_what_it_says() -> None:
    """And a cost that never fits is refused, counted apart, and waits for nothing."""
    costs = [("a", 0, 3), ("a", 1, 3), ("a", 2, 2), ("b", 3, 6), ("b", 4, 0), ("b", 5, 5), ("b", 5, 0)]
    log = "time,ip,units\n" + "".join(f"{1_700_000_000 + at},{key},{cost}\n" for key, at, cost in costs)
    result = found("-", "--policy", "5/minute burst 5", "--cost", "units", stdin=log.encode())
    model = counts(bucket(5, 60, 5), [(Fraction(at), key, cost) for key, at, cost in costs])
    assert {**result, **model, "never": 1, "units": 19, "units_admitted": 10} == result
    table = aiolimit("simulate", "-", "--policy", "5/minute burst 5", "--cost", "units", stdin=log.encode()).stdout
    assert re.search(r"^cost above the limit +1$", table, re.MULTILINE)
    assert re.search(r"^units admitted +10$", table, re.MULTILINE)


def test_several_fields_make_one_key() -> None:
    """Each combination is limited by itself."""
    log = "".join(line(0, ip, path) for ip in "ab" for path in ("/x", "/y") for _ in range(2)).encode()
    result = found("-", "--policy", "1/minute", "--key", "ip,path", stdin=log)
    assert (result["keys"], result["refused"]) == (4, 4)
    assert result["worst_keys"][0]["key"] == "a|/x"
    assert found("-", "--policy", "1/minute", "--key", "{path}", stdin=log)["keys"] == 2


def test_malformed_lines_are_shown_on_standard_error_and_do_no_harm() -> None:
    """And control characters in them do nothing to a terminal."""
    done = aiolimit("simulate", "-", *POLICY, stdin=(line(0) + "\x1b[31m[bold]red\n" + line(1)).encode())
    assert done.returncode == ExitCode.OK
    assert done.stderr.splitlines() == [
        "1 malformed line left out:",
        "  line 2: not in the common or combined log format: \\x1b[31m[bold]red",
    ]
    assert re.search(r"^malformed lines +1$", done.stdout, re.MULTILINE)


def test_malformed_lines_are_listed_in_the_json() -> None:
    """All are counted, the first five listed."""
    result = found("-", *POLICY, stdin=(line(0) + "x\n" * 9).encode())
    assert (result["requests"], result["malformed"], len(result["malformed_lines"])) == (1, 9, 5)
    assert result["malformed_lines"][0] == {
        "line": 2,
        "reason": "not in the common or combined log format",
        "text": "x",
    }


def test_markup_and_control_characters_in_a_key_are_only_text() -> None:
    """A client chooses its user agent."""
    log = b"".join(line(0).replace("test/1.0", "[red]\\x1b\u202e").encode() for _ in range(3))
    done = aiolimit("simulate", "-", "--policy", "1/h", "--key", "user_agent", stdin=log)
    assert "[red]\\x1b\\u202e" in done.stdout


@pytest.mark.parametrize(
    ("stdin", "message"), [(b"x\ny\n", "every line is malformed"), (b"", "it is empty"), (b"\n\n", "it is empty")]
)
def test_a_log_without_a_request_has_an_exit_code_of_its_own(stdin: bytes, message: str) -> None:
    """The report comes nevertheless, so that a script can read why."""
    done = aiolimit("simulate", "-", *POLICY, stdin=stdin)
    assert done.returncode == ExitCode.NO_REQUESTS
    assert message in done.stderr
    assert found("-", *POLICY, stdin=stdin, code=ExitCode.NO_REQUESTS)["malformed"] == stdin.count(b"\n") * (
        b"x" in stdin
    )


@pytest.mark.parametrize(
    ("share", "code"),
    [("0.1966", 1), ("19.66%", 1), ("0.1967", 0), ("19.67 %", 0), ("0", 1), ("100%", 0)],
)
def test_fail_over_compares_the_refused_share(share: str, code: int) -> None:
    """119 of 605 is 19.669 %."""
    done = aiolimit("simulate", EXAMPLE, *POLICY, "--fail-over", share)
    assert (done.returncode, done.stderr) == (code, "")


def test_the_version_is_the_packages() -> None:
    """One line."""
    assert aiolimit("--version").stdout == f"aiolimit {package.__version__}\n"


def test_help_names_every_option_and_exit_code() -> None:
    """Nothing is hidden."""
    shown = " ".join(aiolimit("simulate", "--help").stdout.split())
    for option in ("--policy", "--key", "--format", "--compare", "--json", "--url", "--speed", "--top", "--cost-field"):
        assert option in shown
    assert all(f"{code} " in shown for code in range(6))


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    """As ``| head`` does: no traceback, and a code that is no other's."""
    reader, writer = os.pipe()
    os.close(reader)
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "aiolimit.cli", "simulate", EXAMPLE, *POLICY, *options],
            stdout=writer,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            check=False,
        )
        assert (done.returncode, done.stderr) == (ExitCode.BROKEN_PIPE, b"")
    os.close(writer)


def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    """While it waits for more of the log."""
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "aiolimit.cli", "simulate", fifo, *POLICY], stderr=subprocess.PIPE, cwd=REPOSITORY
    )
    with fifo.open("wb") as log:  # opens when the command has opened the other end
        log.write(line(0).encode())
        log.flush()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (ExitCode.INTERRUPTED, b"")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    """And nothing else happens."""
    code = f"import sys; sys.modules[{missing!r}] = None; from aiolimit.cli import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == (
        f"aiolimit: the command line needs typer and rich ({missing} is missing): pip install 'aiolimit-redis[cli]'\n"
    )


def test_the_package_needs_neither_typer_nor_rich() -> None:
    """Only the command loads them."""
    code = "import sys, aiolimit, aiolimit.cli; sys.exit(any(name in sys.modules for name in ('typer', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
