"""Ends server processes that outlive the test run.

Fixtures stop their servers themselves. The reaper is for the run that cannot: a worker killed by its parent, a timeout
that ends the interpreter, a crash. It is one small process per test process, told over a pipe which process ids to
watch, and in which directories they work; when the pipe closes, for whatever reason, it kills those that are left.
"""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
from pathlib import Path

_WATCH = """
import os, shutil, signal, sys
alive = {}
for line in sys.stdin:
    pid, directory = line.rstrip("\\n").split(" ", 1)
    if directory:
        alive[int(pid)] = directory
    else:
        alive.pop(int(pid), None)
for pid, directory in alive.items():
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    shutil.rmtree(directory, ignore_errors=True)
"""


class Reaper:
    """The watching process; `watch` and `forget` tell it what to kill at the end."""

    def __init__(self) -> None:
        # A session of its own: a Ctrl-C at the terminal must reach the tests, not the one who cleans up after them.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        atexit.register(self.close)

    def watch(self, pid: int, directory: Path) -> None:
        """Kill `pid` and remove its directory when this process is gone."""
        self._tell(f"{pid} {directory}\n")

    def forget(self, pid: int) -> None:
        """Leave `pid` alone from now on: it has ended."""
        self._tell(f"{pid} \n")

    def close(self) -> None:
        """Close the pipe, so that whatever is still watched ends now, and wait for that."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()


@functools.cache
def reaper() -> Reaper:
    """The one reaper of this test process, started at first use."""
    return Reaper()
