"""A live run against a server admits what the replay in memory does, as far as arrivals were on time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from aiolimit.cli import main
from aiolimit.cli.exits import ExitCode
from tests.conftest import OwnServer
from tests.support.proxy import FaultProxy
from tests.support.servers import Server, free_port

from .support import (
    EXAMPLE,
    Model,
    Request,
    aiolimit,
    bucket,
    example_requests,
    fixed_window,
    line,
    sliding_log,
    sliding_window,
)

SPEED = 60
ATTEMPTS = 5

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def live(server: Server, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command against the server, and gives the object it prints."""

    def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
        words = ["simulate", *map(str, arguments), "--url", server.url(), "--json"]
        assert main(words) == code, capfd.readouterr().err
        result: dict[str, Any] = json.loads(capfd.readouterr().out)
        return result

    return run


def bursts(*of: tuple[int, int]) -> list[Request]:
    """So many requests at each of these seconds, from one client."""
    return [(Fraction(at), "192.0.2.1", 1) for at, count in of for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "model", "requests", "margin"),
    [
        ("2/minute burst 10", bucket(2, 60, 10), bursts((45, 20), (120, 20), (150, 20)), 10),
        ("5/minute fixed", fixed_window(5, 60), bursts((45, 8), (75, 8), (105, 8), (135, 8)), 14),
        ("6/minute sliding", sliding_window(6, 60), bursts((45, 9), (75, 9), (165, 9)), 4),
        ("5/minute log", sliding_log(5, 60), bursts((0, 8), (45, 8), (75, 8)), 14),
    ],
    ids=["bucket", "fixed", "sliding", "log"],
)
def test_totals_agree_exactly_where_being_late_does_not_matter(
    *, text: str, model: Model, requests: list[Request], margin: float, live: Run, tmp_path: Path
) -> None:
    """Bursts far enough from every edge: what a model admits is admitted, windows included, wherever they begin.

    `margin` is how late a burst may be, in seconds of the log, without a difference. A run that was later says nothing,
    and is made again.
    """
    log = tmp_path / "log"
    log.write_text("".join(line(float(at)) for at, _, _ in requests))
    for _ in range(ATTEMPTS):
        result = live(log, "--policy", text, "--speed", str(SPEED))
        if result["live"]["late_max"] * SPEED < margin:
            break
    else:
        pytest.fail(f"the machine was too busy to keep within {margin / SPEED:.3f} s, {ATTEMPTS} times")
    decided = model(requests)
    assert (result["admitted"], result["refused"]) == (sum(decided), len(decided) - sum(decided))
    assert result["live"]["memory_admitted"] == sum(decided)


def test_totals_on_a_real_log_differ_no_more_than_arrivals_were_late(live: Run) -> None:
    """A bucket admits as many requests as can be chosen so that they keep to it. If none came later than J, those
    admitted live keep, at the times of the log, to a bucket larger by what comes back in J, and the other way round. So
    the total lies between those of a bucket that much smaller and one that much larger.
    """
    result = live(EXAMPLE, "--policy", "30/minute burst 10", "--speed", "200")
    late_units = math.ceil(result["live"]["late_max"] * result["live"]["speed"] * 30 / 60) + 1
    requests = example_requests()
    least = sum(bucket(30, 60, 10 - late_units)(requests)) if late_units < 10 else 0
    most = sum(bucket(30, 60, 10 + late_units)(requests))
    assert least <= result["admitted"] <= most
    assert least <= result["live"]["memory_admitted_as_arrived"] <= most
    assert result["live"]["memory_admitted"] == sum(bucket(30, 60, 10)(requests))
    assert result["requests"] == result["admitted"] + result["refused"] == len(requests)


def test_a_run_tells_how_it_went(server: Server) -> None:
    """Where, how fast, how late, and what memory says to it; the tables are those of any run."""
    done = aiolimit("simulate", EXAMPLE, "--policy", "30/minute burst 10", "--url", server.url(), "--speed", "2000")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"live on {server.url()}: 2,000 times as fast" in done.stdout
    assert "of idle time left out" in done.stdout
    assert "in memory 486 are admitted" in done.stdout


def test_policies_to_compare_run_one_after_the_other(live: Run) -> None:
    """Each against keys of its own."""
    result = live(EXAMPLE, "--policy", "10/minute burst 5", "--compare", "1000/minute fixed", "--speed", "2000")
    assert [each["refused"] == 0 for each in result["policies"]] == [False, True]
    assert [each["live"]["memory_admitted"] for each in result["policies"]] == [
        sum(bucket(10, 60, 5)(example_requests())),
        605,
    ]


def test_runs_do_not_see_each_other(live: Run, tmp_path: Path) -> None:
    """The second finds the same as the first, although nothing has come back in between."""
    log = tmp_path / "log"
    log.write_text(line(0) * 3)
    for _ in range(2):
        assert live(log, "--policy", "1/d", "--speed", "1")["refused"] == 2


def test_a_cost_that_never_fits_is_not_asked_for(live: Run, tmp_path: Path, server: Server) -> None:
    """The server hears of the others only."""
    log = tmp_path / "log"
    log.write_text("time,ip,units\n1700000000,a,3\n1700000000,a,9\n")
    result = live(log, "--policy", "5/minute", "--cost-field", "units", "--speed", "1")
    assert (result["admitted"], result["refused"], result["never"]) == (1, 1, 1)
    assert server.admin.dbsize() == 1


def test_a_server_that_is_not_there_has_an_exit_code_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """And the message has the address, without a password."""
    url = f"redis://user:secret@127.0.0.1:{free_port()}/0"
    assert main(["simulate", str(EXAMPLE), "--policy", "30/m", "--url", url]) == ExitCode.STORE_FAILED
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(
        f"aiolimit simulate: --url '{url.replace('user:secret@', '')}': the server cannot decide: "
    )


def test_a_server_that_refuses_has_the_same_exit_code(own_server: OwnServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Such as for a wrong password."""
    url = own_server(password="right").url(password="wrong")
    assert main(["simulate", str(EXAMPLE), "--policy", "30/m", "--url", url]) == ExitCode.STORE_FAILED
    assert "the server cannot decide" in capfd.readouterr().err


def test_a_server_that_goes_away_ends_the_run(
    server: Server, proxy: Callable[[Server], FaultProxy], capfd: pytest.CaptureFixture[str]
) -> None:
    """In the middle of it: nothing that somebody else decided is reported as the server's."""
    wire = proxy(server)
    wire.cut_after(3000)  # bytes of replies: some hundred decisions
    words = ["simulate", str(EXAMPLE), "--policy", "30/m", "--url", wire.url(), "--speed", "2000"]
    assert main(words) == ExitCode.STORE_FAILED
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "the server cannot decide: the connection was lost in the middle of the run" in printed.err
    assert server.commandstats()["evalsha"] > 0
