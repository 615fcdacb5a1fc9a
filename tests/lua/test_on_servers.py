"""The scripts as the server runs them: what they send, what they reply, and that fakeredis decides as a server does."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from aiolimit import Decision, FixedWindow, Limiter, RedisBackend, SlidingLog, SlidingWindow, TokenBucket, scripts
from aiolimit.algorithms import CHARGE, PEEK, REFUND, RESET, TAKE, UP_TO, compile_policy
from aiolimit.policies import Policy

from ..support.servers import Server
from .test_static import COMMANDS

POLICIES: list[Policy] = [
    TokenBucket(10, 3600),
    FixedWindow(10, 86_400),
    SlidingWindow(10, 86_400),
    SlidingLog(10, 3600),
    SlidingLog(200, 3600),
]
each_policy = pytest.mark.parametrize("policy", POLICIES, ids=str)


def ask(client: Any, policy: Policy, op: int, keys: list[str], costs: list[int]) -> list[int]:
    """Run a policy's script."""
    rule = compile_policy(policy)
    reply: list[int] = client.eval(scripts.load(rule.script).text, len(keys), *keys, op, *rule.params, *costs)
    return reply


@each_policy
def test_every_verb_replies_four_integers_a_key(policy: Policy, server: Server) -> None:
    """For keys that are new, used, used up, in debt and reset."""
    for op in (PEEK, TAKE, UP_TO, REFUND, CHARGE, CHARGE, TAKE, PEEK, RESET, TAKE):
        reply = ask(server.admin, policy, op, ["a", "b", "a"], [1, 7, 9])
        assert [type(number) for number in reply] == [int] * 12
        assert min(reply) >= 0


@each_policy
def test_uses_only_the_commands_that_are_listed(policy: Policy, server: Server) -> None:
    """An administrator can grant these and no more."""
    server.reset_stats()
    for op in (PEEK, TAKE, UP_TO, REFUND, CHARGE, RESET):
        ask(server.admin, policy, op, ["a", "b"], [1, 7])
    used = {name.upper() for name in server.commandstats()} - {"EVAL"}
    assert used <= COMMANDS
    assert server.commandstats()["eval"] == 6


@each_policy
def test_a_refusal_writes_nothing(policy: Policy, server: Server) -> None:
    """By count of what the server executed."""
    ask(server.admin, policy, CHARGE, ["a"], [policy.limit])
    server.reset_stats()
    assert ask(server.admin, policy, TAKE, ["a", "a", "a"], [1, 2, 3])[::4] == [0, 0, 0]
    assert not set(server.commandstats()) & {"set", "setrange", "pexpire", "del"}


@each_policy
def test_a_key_that_stands_often_is_written_once(policy: Policy, server: Server) -> None:
    """Whatever it takes."""
    server.reset_stats()
    ask(server.admin, policy, TAKE, ["a"] * 8, [1] * 8)
    stats = server.commandstats()
    assert stats.get("set", 0) == 1
    # Before a large log, a SETRANGE that changes nothing; after it, one for the units and one for the header.
    assert stats.get("setrange", 0) <= (3 if isinstance(policy, SlidingLog) and policy.limit > 128 else 0)


def test_large_numbers_reach_the_server_whole(server: Server) -> None:
    """Periods of a hundred million and a billion milliseconds, counts of hundreds of millions: all digits are there."""
    day = 86_400
    for number, window in enumerate((100_000, 1_000_000, 200_000, 3650 * day)):
        for policy in (FixedWindow(10**9, window), SlidingWindow(10**9, window), TokenBucket(10**9, window)):
            key = f"{number} {policy}"
            for times in range(1, 6):
                granted, remaining, _, _ = ask(server.admin, policy, TAKE, [key], [2 * 10**8])
                assert granted == 2 * 10**8
                assert 0 <= remaining - (10**9 - times * 2 * 10**8) < 10**7
            assert 0 < server.admin.pttl(key) <= 2 * window * 1000 + 1
            value = server.admin.get(key).decode()
            assert "e" not in value
            assert "." not in value


def test_times_are_stored_to_the_microsecond(server: Server) -> None:
    """Sixteen digits."""
    before = server.admin.time()
    ask(server.admin, FixedWindow(5, 86_400), TAKE, ["a"], [1])
    after = server.admin.time()
    _, stored = server.admin.get("a").decode().split(":")
    assert before[0] * 10**6 + before[1] - 2000 <= int(stored) <= after[0] * 10**6 + after[1]


def test_a_large_log_is_one_value_that_grows_no_further(server: Server) -> None:
    """Seven bytes a unit and a header, however much is refused and however often it goes round."""
    policy = SlidingLog(10_000, 3600)
    ask(server.admin, policy, CHARGE, ["a"], [10_000])
    for _ in range(3):
        ask(server.admin, policy, CHARGE, ["a"], [7000])
        assert ask(server.admin, policy, TAKE, ["a"], [10_000])[0] == 0
    assert server.admin.strlen("a") <= 8 * 10_000 + 100
    assert server.admin.dbsize() == 1


# fakeredis


@pytest.fixture
def fake_client() -> Any:
    """A fake of its own server. What fakeredis reads from files it reads now, outside the event loop."""
    server = fakeredis.FakeServer()
    fakeredis.FakeRedis(server=server).eval("return 1", 0)
    return fakeredis.FakeAsyncRedis(server=server)


async def story(backend: RedisBackend, policy: Policy) -> list[Decision]:
    """All verbs, one after another, on keys of each state."""
    limiter = Limiter(policy, backend, failure="closed")
    most = policy.limit
    told = [
        await limiter.peek("a"),
        await limiter.try_acquire("a", 3),
        *await limiter.try_acquire_many([("a", 2), ("b", most), ("a", most - 4), "b", "c"]),
        await limiter.acquire_up_to("a", most),
        await limiter.try_acquire("a"),
        await limiter.refund("a", 4),
        await limiter.charge("a", most),
        await limiter.refund("nobody", 4),
        await limiter.peek("a", 2),
        await limiter.reset("a"),
        await limiter.try_acquire("a", most),
    ]
    await backend.aclose()
    return told


@each_policy
async def test_fakeredis_decides_as_a_server_does(policy: Policy, server: Server, fake_client: Any) -> None:
    """Applications test with it. Equal answers, times within what passed between."""
    real = await story(RedisBackend.from_url(server.url(), deadline=10), policy)
    fake = await story(RedisBackend(client=fake_client, deadline=10), policy)
    for one, other in zip(real, fake, strict=True):
        assert one[:6] == other[:6]
        assert one.source == other.source == "redis"
        assert one.retry_after == pytest.approx(other.retry_after, abs=10)
        assert one.reset_after == pytest.approx(other.reset_after, abs=10)


async def test_fakeredis_keeps_expiries(fake_client: Any) -> None:
    """As the server does: none lives for ever."""
    for policy in POLICIES:
        async with RedisBackend(client=fake_client, deadline=10) as backend:
            await Limiter(policy, backend, name=str(policy.limit), failure="closed").try_acquire("k", 5)
    keys = await fake_client.keys()
    assert len(keys) == len(POLICIES)
    assert min([await fake_client.pttl(key) for key in keys]) > 0
    await fake_client.aclose()
