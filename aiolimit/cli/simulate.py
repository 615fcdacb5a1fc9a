"""``aiolimit simulate``: what a policy would have made of a log."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from .exits import ExitCode
from .progress import phase
from .reading import read_log
from .replay import queue, replay
from .report import Report, Result
from .source import Source
from .tables import print_malformed, print_report
from .tally import tally

if TYPE_CHECKING:
    from .arguments import NamedPolicy, Settings
    from .reading import Log

_PIPED_WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1, which means something else here


def simulate(settings: Settings) -> ExitCode:
    """Read the log, replay it, report. Gives the exit code; raises `CommandError` for all that ends it early."""
    errors = Console(stderr=True)
    name, log = _read(settings, errors)
    if settings.url is not None and log.arrivals:
        from .against import live_results

        results = live_results(settings, settings.url, log, errors)
    else:
        results = [in_memory(named, log, errors) for named in settings.policies]
    report = Report(name, settings.columns.key.text, log, results, settings.top)
    if settings.json:
        print(report.to_json(), flush=True)
    else:
        _print_for_people(report, errors)
    return _exit_code(settings, results)


def in_memory(named: NamedPolicy, log: Log, errors: Console, admitted: list[bool] | None = None) -> Result:
    """The figures of one policy; of a replay in memory unless ``admitted`` comes from elsewhere."""
    with phase(f"replaying under {named.text}", 2 * len(log.arrivals), errors) as shown:
        if admitted is None:
            admitted = asyncio.run(replay(named.policy, log.arrivals, shown.advance))
        waits = asyncio.run(queue(named.policy, log.arrivals, shown.advance))
    return Result(tally(named.text, named.policy, log.arrivals, admitted, waits))


def _read(settings: Settings, errors: Console) -> tuple[str, Log]:
    with Source(settings.log) as source, phase("reading", source.size, errors, count=False) as shown:
        log = read_log(source, settings.format, settings.columns, lambda: shown.to(source.position()))
        return source.name, log


def _print_for_people(report: Report, errors: Console) -> None:
    print_malformed(errors, report.log)
    if not report.log.arrivals:
        what = "every line is malformed" if report.log.malformed else "it is empty"
        errors.print(f"aiolimit simulate: no request in the log: {what}", markup=False, highlight=False)
    console = _Output(width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)
    print_report(console, report)
    sys.stdout.flush()


def _exit_code(settings: Settings, results: list[Result]) -> ExitCode:
    first = results[0].tally
    if not first.requests:
        return ExitCode.NO_REQUESTS
    if settings.fail_over is not None and first.refused_share > settings.fail_over:
        return ExitCode.SHARE_EXCEEDED
    return ExitCode.OK
