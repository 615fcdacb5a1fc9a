"""One limit, many processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aiolimit import SlidingLog
from aiolimit.policies import Policy

from ..conformance.stores import kind_name, policies
from ..support.servers import Server

PROCESSES = 4
CALLERS = 250

Asker = subprocess.Popen[str]


@pytest.fixture(scope="module")
def askers() -> Iterator[list[Asker]]:
    """Four processes that do nothing but ask."""
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.integration.asker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    for asker in started:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "ready\n"
    yield started
    for asker in started:
        asker.communicate(timeout=30)
        assert asker.returncode == 0


def ask_all(askers: list[Asker], url: str, policy: str) -> list[int]:
    """How many each process got of one key, all asking at once."""
    order = json.dumps({"url": url, "policy": policy, "key": "k", "callers": CALLERS})
    for asker in askers:
        assert asker.stdin is not None
        asker.stdin.write(order + "\n")
        asker.stdin.flush()
    return [int(asker.stdout.readline()) for asker in askers if asker.stdout is not None]


@pytest.mark.parametrize("policy", [*policies(100), SlidingLog(300, 3600)], ids=lambda p: f"{kind_name(p)}-{p.limit}")
def test_a_thousand_callers_in_four_processes_get_exactly_the_limit(
    policy: Policy, server: Server, askers: list[Asker]
) -> None:
    """Not one more and not one less, on a server that does not know the script yet."""
    assert sum(ask_all(askers, server.url(), str(policy))) == policy.limit


def test_no_clock_of_a_process_reaches_the_server(server: Server, askers: list[Asker]) -> None:
    """Whoever asks, and whenever: calls are equal but for their keys and costs."""
    ask_all(askers, server.url(), "100/h")
    with server.admin.monitor() as monitor:
        ask_all(askers, server.url(), "100/h")
        server.admin.echo("over")
        calls: list[list[str]] = []
        for seen in monitor.listen():
            words = seen["command"].split(" ")
            if words[0] == "ECHO":
                break
            if words[0] == "EVALSHA":
                calls.append(words[3 + int(words[2]) :])
    assert calls
    assert len({tuple(numbers[:-1]) for numbers in calls}) == 1
    assert all(int(number) == 1 for *_, number in calls)
