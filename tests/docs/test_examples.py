"""Every example in README.md and docs/ runs, against a real server, and does what the page says."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import REPOSITORY
from tests.support.markdown import Block, blocks
from tests.support.servers import Server

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
SERVER_IN_EXAMPLES = re.compile(r"redis://localhost(?::6379)?(?![:\w])(?:/(?P<db>\d+))?")  # and no other port

on_one_server = pytest.mark.parametrize("server_kind", ["valkey"], indirect=True)


def of_page(path: Path, *languages: str) -> list[Block]:
    """The page's blocks in any of these languages."""
    return [block for block in blocks(path.read_text(encoding="utf-8")) if block.language in languages]


def with_server(code: str, server: Server) -> str:
    """The example with the test's server in the place of `redis://localhost:6379`."""
    return SERVER_IN_EXAMPLES.sub(lambda match: server.url(int(match["db"] or 0)), code)


def run_python(runner: asyncio.Runner, block: Block, code: str, path: Path, names: dict[str, Any]) -> None:
    """Run one block; one that awaits at its top level runs in the page's loop, as in an asyncio REPL."""
    at_its_lines = "\n" * (block.line - 1) + code  # so that a traceback names the line of the page
    compiled = compile(at_its_lines, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(compiled, names))  # noqa: S307 - our own documentation
    else:
        exec(compiled, names)  # noqa: S102 - our own documentation


async def close_all(names: dict[str, Any]) -> None:
    """Close what a page has left open, so that its examples need not all end with the same line."""
    for value in names.values():
        if not isinstance(value, type) and hasattr(value, "aclose"):
            await value.aclose()


@on_one_server
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_examples_run(path: Path, server: Server) -> None:
    """The blocks of a page run one after the other and see each other's names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        try:
            for block in of_page(path, "python"):
                run_python(runner, block, with_server(block.code, server), path, names)
        finally:
            runner.run(close_all(names))


def shell_examples() -> list[Any]:
    """The README's blocks for the shell, but for those that continuous integration runs as they are."""
    found = of_page(REPOSITORY / "README.md", "bash", "console")
    return [pytest.param(block, id=f"line-{block.line}") for block in found if block.command is None]


@on_one_server
@pytest.mark.parametrize("block", shell_examples())
def test_shell_examples_run(block: Block, server: Server) -> None:
    """A bash block succeeds. A console block prints what it shows after each `$ ` line; `...` stands for anything."""
    code = with_server(block.code, server)
    steps = console_steps(code) if block.language == "console" else [(code, None)]
    for command, shown in steps:
        if command.startswith("pip install "):
            check_requirement(command)
            continue
        printed = run_shell(command)
        if shown:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(shown, printed, flags), f"$ {command}\n{printed}"


def console_steps(code: str) -> list[tuple[str, str | None]]:
    """The commands of a console block, each with the output shown under it."""
    steps = re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (step.partition("\n") for step in steps)]


def run_shell(command: str) -> str:
    """Run a command in the checkout, with this environment's programs first, and return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_requirement(command: str) -> None:
    """A `pip install` line names this distribution, and extras that it has."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in shlex.split(command)[2:]:
        name, _, extras = requirement.rstrip("]").partition("[")
        assert name == project["name"]
        assert set(filter(None, extras.split(","))) <= project["optional-dependencies"].keys()
