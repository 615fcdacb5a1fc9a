"""The progress bar: on standard error, on a terminal only, and only once something takes long."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console

_SHOW_AFTER = 0.5
"""Seconds."""


class Phase:
    """One stretch of work. `to` and `advance` say how far it is."""

    def __init__(self, what: str, total: float, console: Console, *, count: bool) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn() if count else TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total or None)
        self._done = 0.0
        self._show_at = time.monotonic() + _SHOW_AFTER
        self._shown = False

    def advance(self, by: float) -> None:
        """So much more is done."""
        self.to(self._done + by)

    def to(self, done: float) -> None:
        """So much is done in all."""
        self._done = done
        if not self._shown and time.monotonic() >= self._show_at:
            self._shown = True
            self._bar.start()
        if self._shown:
            self._bar.update(self._task, completed=done)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


@contextlib.contextmanager
def phase(what: str, total: float, console: Console, *, count: bool = True) -> Generator[Phase]:
    """Show how far ``what`` is; ``total`` is 0 when unknown, and is shown as a count or as a share."""
    shown = Phase(what, total, console, count=count)
    try:
        yield shown
    finally:
        shown.close()
