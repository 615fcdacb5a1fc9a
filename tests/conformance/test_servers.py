"""What only a server can get wrong: foreign values, denied rights, a full memory, other databases."""

from __future__ import annotations

import asyncio

import pytest

from aiolimit import BackendError, BackendUnavailable, Limiter, RedisBackend, SlidingLog
from aiolimit.policies import Policy

from .conftest import LimiterOf, on_servers
from .stores import KINDS, PATIENCE, ServerStore, kind_name

pytestmark = on_servers

# Small logs are written whole and large ones in place, so both are tried.
every_policy = pytest.mark.parametrize(
    "policy", [*(kind(10, 3600) for kind in KINDS), SlidingLog(1000, 3600)], ids=lambda p: f"{kind_name(p)}-{p.limit}"
)


async def stored_key(store: ServerStore, limiter: Limiter, key: str) -> bytes:
    """The Redis key of a user's key, found by using it once and forgetting it."""
    before = set(store.contents())
    await limiter.charge(key, 1)
    (new,) = set(store.contents()) - before
    store.admin.delete(new)
    return new


@every_policy
async def test_a_key_of_another_type_is_one_clear_error(
    policy: Policy, store: ServerStore, limiter_of: LimiterOf
) -> None:
    """Named in the error, left as it is, and no outage."""
    limiter = limiter_of(policy)
    place = await stored_key(store, limiter, "k")
    for plant in ("rpush", "sadd", "set", "append"):
        store.admin.delete(place)
        getattr(store.admin, plant)(place, "foreign")
        store.admin.pexpire(place, 60_000)
        dumped = store.admin.dump(place)
        for ask in (limiter.try_acquire, limiter.peek, limiter.charge, limiter.refund, limiter.acquire_up_to):
            with pytest.raises(BackendError, match="did not write") as failed:
                await ask("k", 1)
            assert not isinstance(failed.value, BackendUnavailable)
            assert place[:20].decode() in str(failed.value)
        assert store.admin.dump(place) == dumped


@every_policy
async def test_a_foreign_key_costs_its_neighbours_nothing(
    policy: Policy, store: ServerStore, limiter_of: LimiterOf
) -> None:
    """Callers of other keys that travel in the same script call are answered; the one with the foreign key is not."""
    limiter = limiter_of(policy)
    place = await stored_key(store, limiter, "bad")
    store.admin.rpush(place, "foreign")
    store.admin.pexpire(place, 60_000)
    answers = await asyncio.gather(*(limiter.try_acquire(key) for key in ("a", "bad", "b")), return_exceptions=True)
    assert [isinstance(answer, BackendError) for answer in answers] == [False, True, False]
    assert [(await limiter.peek(key)).remaining for key in ("a", "b")] == [policy.limit - 1] * 2


@every_policy
async def test_a_batch_that_fails_for_a_foreign_key_charges_nothing(
    policy: Policy, store: ServerStore, limiter_of: LimiterOf
) -> None:
    """Its caller gets an error in place of all answers, so no key may have been charged."""
    limiter = limiter_of(policy)
    place = await stored_key(store, limiter, "bad")
    store.admin.rpush(place, "foreign")
    store.admin.pexpire(place, 60_000)
    with pytest.raises(BackendError, match="did not write"):
        await limiter.try_acquire_many(["a", "bad", "b"])
    assert [(await limiter.peek(key)).remaining for key in ("a", "b")] == [policy.limit] * 2


@every_policy
@pytest.mark.parametrize("used", [0, 5], ids=["new", "used"])
async def test_a_full_memory_leaves_no_half_write(
    policy: Policy, used: int, store: ServerStore, limiter_of: LimiterOf
) -> None:
    """Every verb that writes is refused as an outage, nothing changes, and it goes on as soon as there is room."""
    limiter = limiter_of(policy)
    await limiter.charge("k", used)
    stored = store.contents()
    store.admin.config_set("maxmemory-policy", "noeviction")
    store.admin.config_set("maxmemory", 1)
    refused = await limiter.try_acquire("k", 2)
    assert (refused.allowed, refused.source) == (False, "fail_closed")
    assert not await limiter.charge("k", 2)
    assert not any(await limiter.try_acquire_many(["k", "l", "k"]))
    store.admin.config_set("maxmemory", 0)
    assert store.contents() == stored
    assert store.server.immortal_keys() == []
    assert (await limiter.try_acquire("k", 2)).remaining == policy.limit - used - 2


@every_policy
@pytest.mark.parametrize("missing", ["pexpire", "set", "setrange", "time", "mget", "getrange"])
async def test_a_missing_right_leaves_no_half_write(
    policy: Policy, missing: str, store: ServerStore, limiter_of: LimiterOf
) -> None:
    """Where the right is needed there is one clear error and nothing is charged; where not, the decision is right."""
    limiter = limiter_of(policy)
    await limiter.charge("k", 5)
    stored = store.contents()
    store.admin.acl_setuser("u", enabled=True, nopass=True, keys=["*"], commands=["+@all", f"-{missing}"])
    backend = RedisBackend.from_url(store.server.url(username="u", password="x"), deadline=PATIENCE)
    async with backend:
        restricted = Limiter(policy, backend, failure="open")
        (answer,) = await asyncio.gather(restricted.try_acquire("k", 2), return_exceptions=True)
    if isinstance(answer, BaseException):
        assert type(answer) is BackendError
        assert "denies a right" in str(answer)
        assert store.contents() == stored
    else:
        assert (answer.source, answer.remaining) == ("redis", policy.limit - 7)
    assert store.server.immortal_keys() == []


@every_policy
async def test_databases_and_prefixes_are_apart(policy: Policy, store: ServerStore, limiter_of: LimiterOf) -> None:
    """One key in two databases and under three prefixes: none sees the others."""
    url = store.server.url
    backends = [
        RedisBackend.from_url(url(0), deadline=PATIENCE),
        RedisBackend.from_url(url(2), deadline=PATIENCE),
        RedisBackend.from_url(url(0), deadline=PATIENCE, prefix="other"),
        RedisBackend.from_url(url(0), deadline=PATIENCE, prefix="other:1"),
    ]
    for backend in backends:
        async with backend:
            assert await Limiter(policy, backend, failure="closed").try_acquire("k", policy.limit)
    assert sorted(key.split(b":{")[0] for key in store.contents()) == [b"aiolimit:1", b"other:1", b"other:1:1"]


async def test_long_and_secret_keys_are_stored_as_digests(store: ServerStore) -> None:
    """A megabyte of key takes a few bytes of key on the server, equal keys still meet, and no secret can be read."""
    async with RedisBackend.from_url(store.server.url(), deadline=PATIENCE) as backend:
        limiter = Limiter("10/h", backend, failure="closed")
        for key in ("x" * 1_000_000, "x" * 201, "x" * 200):
            assert [(await limiter.try_acquire(key, 4)).remaining for _ in range(2)] == [6, 2]
        assert len(store.contents()) == 3
        assert max(map(len, store.contents())) <= 260
    store.admin.flushall()
    async with RedisBackend.from_url(store.server.url(), deadline=PATIENCE, hash_keys=True) as backend:
        limiter = Limiter("10/h", backend, failure="closed")
        assert [(await limiter.try_acquire("Bearer token", 4)).remaining for _ in range(2)] == [6, 2]
        (stored,) = store.contents()
        assert b"Bearer" not in stored
        assert b"token" not in stored


@every_policy
async def test_sixteen_connections_admit_exactly_the_limit(policy: Policy, store: ServerStore) -> None:
    """A thousand callers and more of one key, on sixteen backends."""
    backends = [RedisBackend.from_url(store.server.url(), deadline=PATIENCE) for _ in range(16)]
    limiters = [Limiter(policy, backend, failure="closed") for backend in backends]
    tries = 1000 if policy.limit < 1000 else 1600
    decisions = await asyncio.gather(*(limiters[number % 16].try_acquire("k") for number in range(tries)))
    assert sum(map(bool, decisions)) == policy.limit
    assert {decision.source for decision in decisions} == {"redis"}
    for backend in backends:
        await backend.aclose()


@every_policy
async def test_refused_calls_take_no_memory(policy: Policy, store: ServerStore, limiter_of: LimiterOf) -> None:
    """Ten thousand refusals leave the one value as it was."""
    limiter = limiter_of(policy)
    await limiter.charge("k", policy.limit)
    stored = store.contents()
    for _ in range(5):
        assert not any(await limiter.try_acquire_many(["k"] * 2000))
    assert store.contents() == stored
