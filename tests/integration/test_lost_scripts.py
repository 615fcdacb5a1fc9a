"""The server's script cache is volatile: whatever it forgets, every key is charged exactly once."""

from __future__ import annotations

import asyncio

from aiolimit import FixedWindow, Limiter, TokenBucket
from aiolimit.backends.batching import MAX_KEYS_PER_CALL
from aiolimit.backends.redis import DEFAULT_LANES

from ..conformance.stores import KINDS
from ..support.servers import Server
from .common import used
from .conftest import BackendOf

LIMIT = 10


async def test_a_server_that_knows_no_script_decides_at_once(server: Server, backend_of: BackendOf) -> None:
    """A hundred callers of each policy: all decided, each charged once, each text sent at most once a connection, and
    never loaded on the side.
    """
    backend = backend_of(server.url())
    limiters = [Limiter(kind(LIMIT, 3600), backend, failure="closed") for kind in KINDS]
    server.reset_stats()
    asked = [(limiter, f"k{number}") for number in range(100) for limiter in limiters]
    decisions = await asyncio.gather(*(limiter.try_acquire(key) for limiter, key in asked))
    assert all(decision.allowed and decision.source == "redis" for decision in decisions)
    calls = server.commandstats()
    assert 4 <= calls["eval"] <= 4 * DEFAULT_LANES
    assert not any(name.startswith("script") for name in calls)
    assert [(await used(limiter, [key]))[0] for limiter, key in asked[:40]] == [1] * 40


async def test_a_known_script_goes_by_its_hash_for_ever_after(server: Server, backend_of: BackendOf) -> None:
    """The text was for once."""
    limiter = Limiter(TokenBucket(LIMIT, 3600), backend_of(server.url()))
    await limiter.try_acquire("k")
    server.reset_stats()
    for _ in range(20):
        await limiter.try_acquire("k")
    calls = server.commandstats()
    assert calls["evalsha"] == 20
    assert "eval" not in calls


async def test_only_the_calls_that_failed_are_sent_again(server: Server, backend_of: BackendOf) -> None:
    """Of two scripts in one write the server knows one: its keys are charged once, and so are the other's."""
    backend = backend_of(server.url(), max_connections=1)
    known = Limiter(TokenBucket(LIMIT, 3600), backend, failure="closed")
    unknown = Limiter(FixedWindow(LIMIT, 3600), backend, failure="closed")
    await asyncio.gather(known.try_acquire("warm"), unknown.try_acquire("warm"))
    server.admin.script_flush()
    await known.try_acquire("warm")
    server.reset_stats()
    keys = [f"k{number}" for number in range(50)]
    decisions = await asyncio.gather(*(limiter.try_acquire(key) for key in keys for limiter in (known, unknown)))
    assert all(decisions)
    assert [decision.key for decision in decisions] == [key for key in keys for _ in range(2)]
    calls = server.commandstats()
    assert (calls["evalsha"], calls["eval"]) == (2, 1)
    for limiter in (known, unknown):
        assert await used(limiter, keys) == [1] * len(keys)


async def test_a_batch_of_several_calls_sends_its_text_once(server: Server, backend_of: BackendOf) -> None:
    """Whichever connections they went over, no more than one text for each."""
    limiter = Limiter(TokenBucket(LIMIT, 3600), backend_of(server.url()), failure="closed")
    keys = [f"k{number}" for number in range(4 * MAX_KEYS_PER_CALL)]
    await limiter.try_acquire("warm")
    server.admin.script_flush()
    server.reset_stats()
    decisions = await limiter.try_acquire_many(keys)
    assert [decision.key for decision in decisions if decision.remaining == LIMIT - 1] == keys
    assert server.commandstats()["eval"] <= DEFAULT_LANES


async def test_flushing_all_the_time_charges_nobody_twice(server: Server, backend_of: BackendOf) -> None:
    """Callers of all policies while the cache is emptied again and again, between any two of their calls."""
    backend = backend_of(server.url())
    limiters = [Limiter(kind(LIMIT, 3600), backend, failure="closed") for kind in KINDS]
    stop = asyncio.Event()

    def flush() -> None:
        while not stop.is_set():
            server.admin.script_flush()

    flushing = asyncio.create_task(asyncio.to_thread(flush))
    for start in range(0, 200, 20):
        batch = [f"k{number}" for number in range(start, start + 20)]
        answers = await asyncio.gather(
            *(limiter.try_acquire(key) for key in batch[:10] for limiter in limiters),
            *(limiter.try_acquire_many(batch[10:]) for limiter in limiters),
        )
        assert all(answers)
    stop.set()
    await flushing
    assert backend.stats.script_loads > 4
    for limiter in limiters:
        assert await used(limiter, [f"k{number}" for number in range(200)]) == [1] * 200


async def test_numkeys_is_never_zero(server: Server, backend_of: BackendOf) -> None:
    """Some products refuse scripts without keys; a batch of nothing sends nothing."""
    limiter = Limiter("10/h", backend_of(server.url()))
    await limiter.try_acquire("k")
    server.reset_stats()
    assert await limiter.try_acquire_many([]) == []
    assert "evalsha" not in server.commandstats()
