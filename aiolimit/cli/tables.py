"""The report as tables for people. Text of the log is made harmless for terminals first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from .times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from .reading import Log
    from .report import Agreement, Report, Result
    from .tally import KeyTally, Tally

_MAX_KEY = 60


def print_report(console: Console, report: Report) -> None:
    """The figures, policies side by side, then the worst keys of each, then how a live run agrees with memory."""
    arrivals = report.log.arrivals
    span = f"{format_time(arrivals[0].at_us)} to {format_time(arrivals[-1].at_us)}" if arrivals else "no requests"
    console.print(Text(_plain(f"{report.name}: {report.log.format} log, {span}, by {report.key}")))
    console.print()
    console.print(_figures_table(report.results, report.log))
    for result in report.results:
        if worst := report.worst(result.tally):
            console.print()
            console.print(_worst_table(result.tally.policy, worst))
    for result in report.results:
        if result.live is not None:
            console.print()
            console.print(Text(_live_text(result.tally, result.live)), soft_wrap=True)


def print_malformed(console: Console, log: Log) -> None:
    """The first malformed lines, each with its reason."""
    if log.malformed:
        first = ", the first of them" if log.malformed > len(log.bad_lines) else ""
        console.print(Text(f"{log.malformed:,} malformed {'line' if log.malformed == 1 else 'lines'} left out{first}:"))
    for line in log.bad_lines:
        console.print(Text(f"  line {line.line}: {_plain(line.reason)}: {_plain(line.text)}"), soft_wrap=True)


def _figures_table(results: Sequence[Result], log: Log) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    table.add_column("policy")
    for result in results:
        table.add_column(Text(_plain(result.tally.policy)), justify="right", overflow="fold")
    tallies = [result.tally for result in results]

    def row(label: str, figure: Callable[[Tally], float | None], show: Callable[[float], str]) -> None:
        first, *others = [figure(tally) for tally in tallies]
        table.add_row(label, "-" if first is None else show(first), *(_beside(each, first, show) for each in others))

    row("requests", lambda tally: tally.requests, _count)
    row("admitted", lambda tally: tally.admitted, _count)
    row("refused", lambda tally: tally.refused, _count)
    row("refused share", lambda tally: tally.refused_share, _share)
    if any(tally.never for tally in tallies):
        row("cost above the limit", lambda tally: tally.never, _count)
    if any(tally.units != tally.requests for tally in tallies):
        row("units asked for", lambda tally: tally.units, _count)
        row("units admitted", lambda tally: tally.units_admitted, _count)
    row("keys", lambda tally: len(tally.by_key), _count)
    row("keys refused at least once", lambda tally: tally.keys_refused, _count)
    first = [tally.first_refused for tally in tallies]
    table.add_row("first refused", *("never" if each is None else format_time(each.at_us) for each in first))
    row("waiting, had they queued", lambda tally: tally.waits.waiting, _count)
    row("their wait, p50", lambda tally: tally.waits.p50, format_seconds)
    row("their wait, p95", lambda tally: tally.waits.p95, format_seconds)
    row("their wait, longest", lambda tally: tally.waits.longest, format_seconds)
    table.add_row("malformed lines", *([_count(log.malformed)] * len(results)))
    return table


def _beside(figure: float | None, first: float | None, show: Callable[[float], str]) -> str:
    """A figure and how it differs from the first policy's."""
    if figure is None or first is None:
        return "-" if figure is None else show(figure)
    change = figure - first
    return f"{show(figure)} ({'-' if change < 0 else '+'}{show(abs(change))})" if change else f"{show(figure)} (=)"


def _worst_table(policy: str, worst: Sequence[KeyTally]) -> Table:
    title = Text(_plain(f"worst keys under {policy}"))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("key", overflow="fold")
    for name in ("requests", "admitted", "refused", "share"):
        table.add_column(name, justify="right")
    for each in worst:
        figures = [_count(figure) for figure in (each.requests, each.admitted, each.refused)]
        table.add_row(Text(_plain(each.key, _MAX_KEY)), *figures, _share(each.refused_share))
    return table


def _live_text(tally: Tally, live: Agreement) -> str:
    late = f"{live.late_p50 * 1000:.2f} ms late at p50, {live.late_max * 1000:.2f} ms at most"
    in_log = [format_seconds(seconds * live.speed) for seconds in (live.late_p50, live.late_max)]
    skipped = f", {format_seconds(live.idle_skipped)} of idle time left out" if live.idle_skipped else ""
    return (
        f"live on {live.url}: {live.speed:,.6g} times as fast, {live.seconds:.1f} s{skipped}\n"
        f"arrivals were {late} ({in_log[0]} and {in_log[1]} of the log)\n"
        f"in memory {live.memory_admitted:,} are admitted ({tally.admitted - live.memory_admitted:+,} live); "
        f"at the times at which the server was really asked, {live.memory_admitted_as_arrived:,}"
    )


def _count(figure: float) -> str:
    return f"{figure:,.0f}"


def _share(share: float) -> str:
    return f"{share * 100:.2f} %"


def format_seconds(seconds: float) -> str:
    """A time span in the unit that reads best."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _plain(text: str, most: int = 200) -> str:
    """One line of printable characters, cut to ``most``."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
