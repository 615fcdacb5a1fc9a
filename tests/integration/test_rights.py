"""Users of the server that may do little. A denied right is a mistake that somebody must mend, never an outage."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aiolimit import BackendError, BackendUnavailable, Limiter
from aiolimit.policies import Policy

from ..conformance.stores import policies
from ..support.servers import Server
from .conftest import BackendOf

DOCUMENTED = Path(__file__).parents[2] / "docs" / "failure.md"

LARGE_LOG = "1000/h log"  # written in place, and so with other commands than a small one


def every_policy() -> list[Policy | str]:
    """And both ways of a log."""
    return [*policies(), LARGE_LOG]


async def use_every_verb(limiter: Limiter) -> None:
    """Twice, on a key that is new and one that is known; everything must come from the server."""
    for _ in range(2):
        for decision in (
            await limiter.try_acquire("k", 3),
            await limiter.peek("k"),
            await limiter.acquire("k"),
            await limiter.acquire_up_to("k", 2),
            await limiter.charge("k", 2),
            await limiter.refund("k", 8),
            *(await limiter.try_acquire_many(["k", "l", ("k", 2)])),
            await limiter.reset("l"),
        ):
            assert decision.source == "redis"
            assert decision.allowed
        await limiter.refund("k", 9)


async def test_the_documented_rights_are_enough_for_everything(server: Server, backend_of: BackendOf) -> None:
    """Word for word as the documentation has them, on a server that knows no script."""
    (line,) = re.findall(r"^ACL SETUSER .*$", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)
    server.admin.execute_command(*shlex.split(line))
    backend = backend_of(server.url(username="limiter", password="password"))
    for policy in every_policy():
        server.admin.script_flush()
        await use_every_verb(Limiter(policy, backend, failure="open"))


@pytest.mark.parametrize(
    "without",
    ["-script", "-function -fcall", "-multi -exec", "-client -info -config -ping", "-hello", "-@connection +auth"],
)
async def test_rights_that_are_not_needed(without: str, server: Server, backend_of: BackendOf) -> None:
    """Least of all SCRIPT: where the text is missing it goes with EVAL."""
    rights = ["+@all", *without.split()]
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", *rights)
    backend = backend_of(server.url(username="u", password="p"))
    await use_every_verb(Limiter("100/h", backend, failure="open"))


@pytest.mark.parametrize("missing", ["eval", "evalsha", "time", "mget", "set"])
async def test_a_missing_right_is_named(missing: str, server: Server, backend_of: BackendOf) -> None:
    """In one clear error, each time, that never becomes an admission; and it is gone with the right given."""
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", f"-{missing}")
    limiter = Limiter("10/h", backend_of(server.url(username="u", password="p")), failure="open")
    for _ in range(7):  # more than a circuit breaker has patience for
        with pytest.raises(BackendError, match=rf"denies a right.*\+{missing}\b") as failed:
            await limiter.try_acquire("k")
        assert not isinstance(failed.value, BackendUnavailable)
    with pytest.raises(BackendError, match="denies a right"):
        await limiter.try_acquire_many(["k", "l"])
    assert server.admin.dbsize() == 0
    server.admin.execute_command("ACL", "SETUSER", "u", f"+{missing}")
    assert (await limiter.try_acquire("k")).source == "redis"


async def test_without_eval_a_known_script_decides(server: Server, backend_of: BackendOf) -> None:
    """An administrator may have sent it before."""
    await Limiter("10/h", backend_of(server.url()), failure="closed").try_acquire("k")
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-eval")
    limiter = Limiter("10/h", backend_of(server.url(username="u", password="p")), failure="open")
    assert (await limiter.try_acquire("k")).remaining == 8


@pytest.mark.parametrize("policy", every_policy(), ids=str)
async def test_keys_beyond_its_prefix_are_not_needed(
    policy: Policy | str, server: Server, backend_of: BackendOf
) -> None:
    """And under another prefix there is the same clear error."""
    server.admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~aiolimit:*", "+@all")
    url = server.url(username="u", password="p")
    await use_every_verb(Limiter(policy, backend_of(url), failure="open"))
    with pytest.raises(BackendError, match="denies a right"):
        await Limiter(policy, backend_of(url, prefix="other"), failure="open").try_acquire("k")
