"""The fenced code blocks of a Markdown file.

Usage: python -m tests.support.markdown FILE COMMAND

prints the block of FILE that stands under the comment `<!-- command: COMMAND -->`. Standard library only: continuous
integration runs it before anything is installed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"""
    (?:^<!--\ command:\ (?P<command>\w+)\ -->\n+)?    # names a block that continuous integration runs
    ^(?P<fence>```+)(?P<language>\w+)\n
    (?P<code>.*?)
    ^(?P=fence)$
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line its text starts on, and the command it is named as."""

    language: str
    code: str
    line: int
    command: str | None


def blocks(text: str) -> list[Block]:
    """Every fenced block that names a language in plain letters, in order."""
    return [
        Block(match["language"], match["code"], text.count("\n", 0, match.start("code")) + 1, match["command"])
        for match in _BLOCK.finditer(text)
    ]


def command(path: Path, name: str) -> str:
    """The text of the block under `<!-- command: NAME -->`; `LookupError` unless there is exactly one."""
    found = [block.code for block in blocks(path.read_text(encoding="utf-8")) if block.command == name]
    if len(found) != 1:
        raise LookupError(f"{path}: {len(found)} blocks stand directly under '<!-- command: {name} -->', not one")
    return found[0]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.stdout.write(command(Path(sys.argv[1]), sys.argv[2]))
