"""The usual way: a script for one key, called once per decision with redis-py."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Redis

from aiolimit.algorithms import TAKE, compile_policy
from aiolimit.scripts import load

from ..load import PLENTY, POLICY
from ..runner import check

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from aiolimit.policies import Policy

    from ..server import Server

POOL = 50

# The token bucket as it stands in most tutorials: two fields of a hash, floats, and an expiry.
HASH_TEXT = """
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'updated')
local tokens, updated = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - updated) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'updated', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate) + 1)
return { allowed and 1 or 0, math.floor(tokens) }
"""


class Call(NamedTuple):
    """One EVALSHA for one key."""

    sha: str
    prefix: str
    arguments: tuple[int | str, ...]


def hash_call(server: Server, *, burst: int = PLENTY) -> Call:
    """The usual script; the server knows it afterwards."""
    return Call(server.admin.script_load(HASH_TEXT), "bucket:", ("0.0002778", burst, 1))


def our_call(server: Server, policy: Policy = POLICY) -> Call:
    """The script that the limiter of this policy calls, for one key."""
    rule = compile_policy(policy)
    sha = server.admin.script_load(load(rule.script).text)
    return Call(sha, f"aiolimit:1:{{0}}:default:{policy.tag}:", (TAKE, *rule.params, 1))


@asynccontextmanager
async def pooled(server: Server, connections: int = POOL) -> AsyncGenerator[Any, None]:
    """A client of redis-py as fast as it gets: RESP2, no timeouts, callers wait for a connection."""
    pool = BlockingConnectionPool.from_url(server.url, max_connections=connections, timeout=None, protocol=2)
    client = Redis(connection_pool=pool)
    try:
        yield client
    finally:
        await client.aclose()
        await pool.disconnect()


def asker(client: Any, call: Call, counts: list[int]) -> Callable[[str], Awaitable[None]]:
    """Ask once per await, counting what is admitted."""
    evalsha = client.evalsha
    sha, prefix, arguments = call

    async def ask(key: str) -> None:
        reply = await evalsha(sha, 1, prefix + key, *arguments)
        counts[0] += reply[0]

    return ask


async def one_by_one_us(client: Any, call: Call, questions: int) -> float:
    """Microseconds a decision of one caller alone."""
    counts = [0]
    ask = asker(client, call, counts)
    for number in range(20):
        await ask(f"user:{number}")
    started = time.perf_counter()
    for number in range(questions):
        await ask(f"user:{number}")
    elapsed = time.perf_counter() - started
    check(counts[0] == questions + 20, f"{questions + 20} asked, {counts[0]} admitted")
    return elapsed / questions * 1_000_000
