"""Every example of the page on `aiolimit simulate` runs from a checkout, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY
from tests.support.markdown import Block, blocks
from tests.support.servers import Server

PAGES = [REPOSITORY / "docs" / "simulate.md", REPOSITORY / "examples" / "README.md"]
EXAMPLES = [
    pytest.param(block, id=f"{path.name}-line-{block.line}")
    for path in PAGES
    for block in blocks(path.read_text(encoding="utf-8"))
]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH on which `aiolimit` is the command of this checkout, and `python` is this Python."""
    for name, words in (("aiolimit", [sys.executable, "-m", "aiolimit.cli"]), ("python", [sys.executable])):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("server_kind", ["valkey"], indirect=True)
@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_runs(block: Block, programs: str, server: Server) -> None:
    """A bash block succeeds; a console block prints what it shows, but for space at the ends of lines."""
    command, shown = block.code, None
    if block.language == "console":
        command, _, shown = block.code.removeprefix("$ ").partition("\n")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace("redis://localhost:6379/0", server.url())],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": programs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if shown is not None:
        assert re.sub(r" +$", "", done.stdout, flags=re.MULTILINE) == shown


def test_every_block_of_the_pages_is_one_that_runs() -> None:
    """No block of another kind, which nobody would check."""
    fences = sum(path.read_text(encoding="utf-8").count("\n```") for path in PAGES)
    assert fences == 2 * len(EXAMPLES)
    assert {example.values[0].language for example in EXAMPLES} <= {"bash", "console"}  # type: ignore[union-attr]
