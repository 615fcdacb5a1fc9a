"""What people see: numbers in units that read well, and a progress bar on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from aiolimit.cli import main, progress
from aiolimit.cli.tables import format_seconds


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0005, "0.5 ms"),
        (0.25, "250 ms"),
        (1, "1.0 s"),
        (119.96, "120.0 s"),
        (150, "2.5 min"),
        (9000, "2.5 h"),
        (200_000, "2.3 d"),
    ],
)
def test_a_time_span_is_shown_in_the_unit_that_reads_best(seconds: float, shown: str) -> None:
    """From fractions of a millisecond to days."""
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(("terminal", "shown"), [(True, True), (False, False)])
def test_long_work_shows_its_progress_on_a_terminal(
    terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nowhere else."""
    monkeypatch.setattr(progress, "_SHOW_AFTER", 0)
    output = io.StringIO()
    with progress.phase("reading", 10, Console(file=output, force_terminal=terminal)) as bar:
        bar.advance(3)
        bar.advance(4)
    assert ("reading" in output.getvalue() and "7/10" in output.getvalue()) == shown


def test_short_work_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar that comes and goes at once is only a flicker."""
    monkeypatch.setattr(progress, "_SHOW_AFTER", 3600)
    output = io.StringIO()
    with progress.phase("reading", 10, Console(file=output, force_terminal=True), count=False) as bar:
        bar.to(10)
    assert "reading" not in output.getvalue()


def test_ctrl_c_while_it_loads_is_quiet(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """No traceback, and the exit code of an interruption."""

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aiolimit.cli.import_module", interrupted)
    assert main([]) == 130
    assert capfd.readouterr() == ("", "")
