"""Writes every script as it is sent to the server into a directory, for tools that read Lua.

Usage: python -m tests.support.assembled_lua DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from aiolimit import scripts


def write(directory: Path) -> list[Path]:
    """Write `NAME.lua` for every script into `directory`, made if need be, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in scripts.NAMES:
        path = directory / f"{name}.lua"
        path.write_text(scripts.load(name).text + "\n", encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for written in write(Path(sys.argv[1])):
        print(written)  # noqa: T201 - a program's output
