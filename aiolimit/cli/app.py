"""The command line itself: names, help and how it ends. `arguments` checks, `simulate` does."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from .exits import CommandError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

app = typer.Typer(
    name="aiolimit",
    help="Rate limits over Redis and Valkey, tried out on real logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_EXIT_CODES = (
    "Exit codes: 0 done; 1 more refused than --fail-over allows; 2 a wrong argument; 3 the log cannot be read; "
    "4 no request in the log; 5 the server of --url does not decide."
)


def run(arguments: Sequence[str]) -> int:
    """Run the command. Gives its exit code."""
    try:
        app(list(arguments), prog_name="aiolimit")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _show_version(*, asked: bool) -> None:
    if asked:
        print("aiolimit", __version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """Rate limits over Redis and Valkey, tried out on real logs."""


@app.command("simulate", epilog=_EXIT_CODES)
def _simulate(
    *,
    access_log: Annotated[str, typer.Argument(help="An access log, plain or gzip; - is standard input.")],
    policy: Annotated[str, typer.Option(help="The limit, as in '30/minute burst 10' or '1000/h sliding'.")],
    key: Annotated[
        str, typer.Option(help="What is limited: a field, several as ip,path, or a template as {ip}:{path}.")
    ] = "ip",
    log_format: Annotated[
        str, typer.Option("--format", help="combined, common, json (one object a line), csv (named columns), or auto.")
    ] = "auto",
    time_field: Annotated[str | None, typer.Option(help="The field with the time, where it has no usual name.")] = None,
    cost_field: Annotated[
        str | None, typer.Option("--cost-field", "--cost", help="The field with the cost; each request costs 1 else.")
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="Another policy, shown beside the first. May be given again.")
    ] = None,
    top: Annotated[str, typer.Option(metavar="N", help="How many of the worst keys are listed.")] = "10",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    fail_over: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Exit with 1 if more than this share is refused, as in 5%.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Run live against this server, as in redis://localhost:6379/0.")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(metavar="N", help="Live: how many times as fast; by default it takes about ten seconds."),
    ] = None,
) -> None:
    """Replay an access log through a limit, and show what would have been admitted and refused."""
    with _clean_end("aiolimit simulate"):
        from .arguments import check
        from .simulate import simulate

        settings = check(
            log=access_log,
            policy=policy,
            compare=compare or (),
            key=key,
            log_format=log_format,
            time_field=time_field,
            cost_field=cost_field,
            top=top,
            json=as_json,
            fail_over=fail_over,
            url=url,
            speed=speed,
        )
        raise typer.Exit(simulate(settings))


@contextlib.contextmanager
def _clean_end(command: str) -> Generator[None]:
    """Turn what ends a command early into its exit code, without a traceback."""
    try:
        yield
    except CommandError as error:
        print(f"{command}: {error}", file=sys.stderr)
        raise typer.Exit(error.code) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # Python flushes standard output once more at exit, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
