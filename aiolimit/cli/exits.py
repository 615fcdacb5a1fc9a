"""How the command ends: one exit code for each way, and one line on standard error that says what to do."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell from the exit code."""

    OK = 0
    SHARE_EXCEEDED = 1
    """More was refused than ``--fail-over`` allows."""
    USAGE = 2
    """An argument is wrong."""
    UNREADABLE = 3
    """The log cannot be read."""
    NO_REQUESTS = 4
    """The log has no request: it is empty, or every line is malformed."""
    STORE_FAILED = 5
    """The server of ``--url`` did not answer, or refused to."""
    INTERRUPTED = 130
    """Ctrl-C: 128 and the number of SIGINT, as a shell reports it."""
    BROKEN_PIPE = 141
    """The reader of the output has gone: 128 and the number of SIGPIPE."""


class CommandError(Exception):
    """Ends the command: the message is printed, the code returned."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def wrong_argument(name: str, value: object, what: str) -> CommandError:
    """The error for an argument that cannot be used."""
    return CommandError(ExitCode.USAGE, f"{name} {value!r}: {what}")
