"""Builds the preload library that lets a test step a server's wall clock, and holds the offset it reads."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).with_name("clock_shim.c")
_OFFSET = struct.Struct("=q")


def find_compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(compiler: str, directory: Path) -> Path:
    """Compile the shim into `directory` and return the library's path."""
    library = directory / "clock_shim.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class ClockOffset:
    """Eight bytes of a file, shared with one server process: the microseconds its wall clock is ahead."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(_OFFSET.pack(0))
        self.path = path
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _OFFSET.size)

    def set(self, offset_us: int) -> None:
        """Make the server read `offset_us` microseconds more than the true time, from its next reading on."""
        # One aligned store of eight bytes: the server never sees half of a step.
        memoryview(self._page).cast("q")[0] = offset_us

    def close(self) -> None:
        """Unmap the file."""
        self._page.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
