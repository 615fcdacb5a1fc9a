"""The command ``aiolimit``. It needs the extra ``aiolimit-redis[cli]``; nothing else in the package does."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HINT = "aiolimit: the command line needs typer and rich ({missing} is missing): pip install 'aiolimit-redis[cli]'"
_NEEDED = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments``, those of the process unless given, and return its exit code."""
    try:
        for name in _NEEDED:
            import_module(name)
        from .app import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(_HINT.format(missing=missing), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)
