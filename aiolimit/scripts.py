"""The Lua scripts: found in the installed package or in the checkout, put together, and hashed.

A line ``-- include "lib/x.lua"`` stands for the text of that file. An include may not include.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = ("token_bucket", "fixed_window", "sliding_window", "sliding_log")
"""Every script, by the name that its rule calls it."""

_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE / "_lua", _PACKAGE.parent / "lua")
_INCLUDE = re.compile(r'^-- include "([\w./]+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One script as it is sent."""

    name: str
    text: str
    sha: str
    """The SHA-1 of the text in hexadecimal: what EVALSHA asks for."""


@cache
def load(name: str, *, clock: str = "lib/clock.lua") -> Script:
    """Put together the script of this name.

    Args:
        name: One of `NAMES`.
        clock: The file that stands in for the server's clock, relative to the scripts or absolute; for tests.

    Raises:
        FileNotFoundError: When the scripts are neither in the package nor beside it.
    """
    files = next((place for place in _PLACES if (place / f"{name}.lua").is_file()), None)
    if files is None:
        raise FileNotFoundError(f"no {name}.lua in {' or '.join(map(str, _PLACES))}: the installation is incomplete")

    def include(match: re.Match[str]) -> str:
        path = match[1] if match[1] != "lib/clock.lua" else clock
        return (files / path).read_text(encoding="utf-8").rstrip("\n")

    text = _INCLUDE.sub(include, (files / f"{name}.lua").read_text(encoding="utf-8"))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
