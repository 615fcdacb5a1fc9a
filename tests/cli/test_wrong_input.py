"""Wrong input on the command line: the message names the argument, the value and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiolimit.cli import main
from aiolimit.cli.exits import ExitCode

from .support import EXAMPLE, aiolimit

LOG = str(EXAMPLE)
POLICY = ["--policy", "30/m"]
URL = ["--url", "redis://localhost"]


@pytest.mark.parametrize(
    ("arguments", "named", "right"),
    [
        ([LOG, "--policy", "30/minut"], "--policy '30/minut'", "minute"),
        ([LOG, "--policy", "thirty a minute"], "--policy 'thirty a minute'", "100/minute burst 20"),
        ([LOG, "--policy", ""], "--policy ''", "100/minute burst 20"),
        ([LOG, "--policy", "30/month"], "--policy '30/month'", "30d"),
        ([LOG, "--policy", "10/s; 100/m"], "--policy '10/s; 100/m'", "give one here, and others with --compare"),
        ([LOG, *POLICY, "--compare", "0/s"], "--compare '0/s'", "more than 0"),
        ([LOG, *POLICY, "--key", "client"], "--key 'client'", "there are ip, "),
        ([LOG, *POLICY, "--key", "ip,"], "--key 'ip,'", "'ip,path'"),
        ([LOG, *POLICY, "--key", "{ip"], "--key '{ip'", "'{ip}:{path}'"),
        ([LOG, *POLICY, "--time-field", "at"], "--time-field 'at'", "there are ip, "),
        ([LOG, *POLICY, "--cost-field", "tokens"], "--cost-field 'tokens'", "bytes"),
        ([LOG, *POLICY, "--format", "xml"], "--format 'xml'", "auto, combined, common, json, csv"),
        ([LOG, *POLICY, "--top", "-1"], "--top '-1'", "0 or more"),
        ([LOG, *POLICY, "--top", "many"], "--top 'many'", "whole number"),
        ([LOG, *POLICY, "--fail-over", "lots"], "--fail-over 'lots'", "0.05 or 5%"),
        ([LOG, *POLICY, "--fail-over", "120%"], "--fail-over '120%'", "0.05 or 5%"),
        ([LOG, *POLICY, "--fail-over", "nan"], "--fail-over 'nan'", "0.05 or 5%"),
        ([LOG, *POLICY, "--speed", "60"], "--speed '60'", "--url"),
        ([LOG, *POLICY, *URL, "--speed", "0"], "--speed '0'", "more than 0"),
        ([LOG, *POLICY, *URL, "--speed", "fast"], "--speed 'fast'", "as in 60"),
        ([LOG, *POLICY, *URL, "--speed", "inf"], "--speed 'inf'", "as in 60"),
        ([LOG, *POLICY, *URL, "--speed", "60001"], "--speed 60001.0", "the fastest that works is 60000"),
        ([LOG, *POLICY, *URL, "--speed", "1e-9"], "--speed 1e-09", "ten years"),
        ([LOG, *POLICY, "--url", "localhost:6379"], "--url 'localhost:6379'", "redis://"),
        ([LOG, *POLICY, "--url", "http://localhost"], "--url 'http://localhost'", "redis://"),
        ([LOG, *POLICY, "--url", "redis://localhost:port"], "--url 'redis://localhost:port'", ""),
        ([LOG, *POLICY, "--url", "redis://localhost/zero"], "--url 'redis://localhost/zero'", "number"),
        ([LOG, *POLICY, "--unknown"], "--unknown", ""),
        ([LOG], "--policy", ""),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: list[str], named: str, right: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line, nothing on standard output, and the exit code of wrong arguments."""
    assert main(["simulate", *arguments]) == ExitCode.USAGE
    printed = capfd.readouterr()
    assert printed.out == ""
    assert named in printed.err
    assert right in printed.err
    assert "Traceback" not in printed.err


def test_a_password_in_a_wrong_url_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Error messages end up in logs."""
    assert main(["simulate", LOG, *POLICY, "--url", "http://user:secret@localhost"]) == ExitCode.USAGE
    assert "secret" not in capfd.readouterr().err


def test_a_log_that_is_not_there_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A missing file, a folder, and a file that may not be read."""
    for path, reason in ((tmp_path / "missing.log", "there is no such file"), (tmp_path, "is a directory")):
        assert main(["simulate", str(path), *POLICY]) == ExitCode.UNREADABLE
        printed = capfd.readouterr()
        assert printed.err.startswith(f"aiolimit simulate: ACCESS_LOG {str(path)!r}: {reason}")
        assert printed.out == ""


def test_an_error_of_the_system_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """Such as reading what cannot be read: the memory of a process, from its start."""
    assert main(["simulate", "/proc/self/mem", *POLICY]) == ExitCode.UNREADABLE
    assert "ACCESS_LOG '/proc/self/mem': Input/output error" in capfd.readouterr().err


def test_a_command_without_arguments_shows_how_it_is_used() -> None:
    """And where to find help."""
    done = aiolimit("simulate")
    assert done.returncode == ExitCode.USAGE
    assert "Usage: aiolimit simulate" in done.stderr
    assert "--help" in done.stderr
