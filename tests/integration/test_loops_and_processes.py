"""A limiter made as a module is loaded, used wherever an application may use it. Every warning is an error there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ..support.servers import Server

HOWS = len(("a URL", "a client", "a blocking pool"))


def run(program: str, *arguments: str) -> list[int]:
    """What the program prints for each way to make a backend; it must be all that it says."""
    command = [sys.executable, "-W", "error", "-m", f"tests.integration.programs.{program}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    counts: list[int] = json.loads(ended.stdout)
    return counts


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_in_three_event_loops_after_one_another(server: Server, loop: str) -> None:
    """The second loop has connections of its own; nothing is left of the first."""
    assert run("runs", server.url(), loop) == [90] * HOWS


def test_in_two_threads_at_once(server: Server) -> None:
    """Each with its own loop and connections."""
    assert run("threads", server.url()) == [100] * HOWS


@pytest.mark.parametrize("where", ["between loops", "inside"])
def test_in_forked_children(server: Server, where: str) -> None:
    """Parent and children share the limit exactly, and nobody's connection is disturbed."""
    assert run("forks", server.url(), where) == [100] * HOWS
