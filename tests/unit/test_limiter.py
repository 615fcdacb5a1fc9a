"""The limiter's own part: what it checks before it asks, and what it makes of answers and failures."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Callable
from typing import Any, Self

import pytest

from aiolimit import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    Decision,
    FixedWindow,
    Limiter,
    MemoryBackend,
    PolicyError,
    RateLimitExceeded,
    RedisBackend,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from aiolimit.backends.base import Place
from aiolimit.decision import Source


class Recorder:
    """A backend that notes what it is asked and answers or fails as it is told."""

    source: Source = "redis"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[Any, ...]] = []
        self.closed = 0
        self.without: list[tuple[Any, ...]] = []

    def place(self, name: str, policy: Any, group: Any = None) -> Place:
        """One that asks nobody."""
        return Place(self._ask, self._ask_many, lambda *reason: self.without.append(reason))

    async def aclose(self) -> None:
        """Count it."""
        self.closed += 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _ask(self, *question: Any) -> tuple[int, int, int, int]:
        self.asked.append(question)
        if self.error:
            raise self.error
        return 1, 2, 0, 3_000_000

    async def _ask_many(self, op: int, keys: Any, costs: Any) -> list[tuple[int, int, int, int]]:
        self.asked.append((op, tuple(keys), tuple(costs)))
        if self.error:
            raise self.error
        return [(1, 2, 0, 3_000_000) for _ in keys]


VERBS: dict[str, Callable[[Limiter, Any, Any], Any]] = {
    "try_acquire": lambda limiter, key, cost: limiter.try_acquire(key, cost),
    "try_acquire_many": lambda limiter, key, cost: limiter.try_acquire_many(["a", (key, cost), "b"]),
    "acquire_up_to": lambda limiter, key, cost: limiter.acquire_up_to(key, cost),
    "acquire": lambda limiter, key, cost: limiter.acquire(key, cost),
    "peek": lambda limiter, key, cost: limiter.peek(key, cost),
    "refund": lambda limiter, key, cost: limiter.refund(key, cost),
    "charge": lambda limiter, key, cost: limiter.charge(key, cost),
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


async def call(verb: Callable[[Limiter, Any, Any], Any], limiter: Limiter, key: Any, cost: Any) -> Any:
    """Errors may come from the call or from awaiting it; callers see no difference."""
    return await verb(limiter, key, cost)


class TestCosts:
    @every_verb
    @pytest.mark.parametrize("cost", [1.0, -0.0, 1.5, -1e308, math.nan, math.inf, "1", None, True, b"1", [1]])
    async def test_a_cost_is_a_whole_number(self, verb: Any, cost: Any) -> None:
        """Anything else is a TypeError that names it, and nothing is asked."""
        backend = Recorder()
        with pytest.raises(TypeError, match="cost must be a whole number of units, not ") as failed:
            await call(verb, Limiter("10/h", backend), "k", cost)
        assert repr(cost) in str(failed.value)
        assert type(cost).__name__ in str(failed.value)
        assert backend.asked == []

    @every_verb
    @pytest.mark.parametrize("cost", [-1, -5, -(10**30), 2**53])
    async def test_a_cost_is_not_negative_and_not_endless(self, verb: Any, cost: int) -> None:
        """Units are given back by refund alone; nothing is asked."""
        backend = Recorder()
        with pytest.raises(
            ValueError, match=rf"cost must be between 0 and 2\*\*53 - 1 units, not {cost}; .*use refund"
        ):
            await call(verb, Limiter("10/h", backend), "k", cost)
        assert backend.asked == []

    async def test_negative_costs_mint_nothing(self) -> None:
        """A key gets its limit afterwards as before."""
        limiter = Limiter("10/h")
        for _ in range(2):
            with pytest.raises(ValueError, match="not -5"):
                await limiter.try_acquire("k", -5)
        assert sum([bool(await limiter.try_acquire("k")) for _ in range(20)]) == 10

    @pytest.mark.parametrize("name", ["try_acquire", "try_acquire_many", "acquire", "peek"])
    @pytest.mark.parametrize("policy", [TokenBucket(10), FixedWindow(10, 1), SlidingWindow(10, 1), SlidingLog(10, 1)])
    async def test_what_can_never_be_admitted_raises(self, name: str, policy: Any) -> None:
        """With what the policy admits and what to do; nothing is asked."""
        backend = Recorder()
        told = rf"cost 11 can never be admitted: the policy {policy} admits at most 10 at once; .*acquire_up_to"
        with pytest.raises(PolicyError, match=told):
            await call(VERBS[name], Limiter(policy, backend), "k", 11)
        assert backend.asked == []

    async def test_other_verbs_take_costs_above_the_limit(self) -> None:
        """As many as fit; what was really used; more than is in use."""
        limiter = Limiter("10/h")
        assert (await limiter.acquire_up_to("k", 11)).granted == 10
        assert (await limiter.charge("k", 11)).granted == 11
        assert (await limiter.refund("k", 1000)).remaining == 10


class TestKeys:
    @every_verb
    @pytest.mark.parametrize("key", [None, True, 5, 1.5, ["k"], {}, bytearray(b"k")])
    async def test_a_key_is_text_or_bytes(self, verb: Any, key: Any) -> None:
        """In memory and on a server; nothing is kept or sent."""
        memory = MemoryBackend()
        for backend in (memory, RedisBackend.from_url("redis://127.0.0.1:1")):
            with pytest.raises(TypeError, match=f"key must be str or bytes, not {type(key).__name__}"):
                await call(verb, Limiter("10/h", backend, failure="closed"), key, 1)
            await backend.aclose()
        assert len(memory) == 0

    @every_verb
    @pytest.mark.parametrize(
        ("key", "told"), [("", "key is empty"), (b"", "key is empty"), ("\ud800", "lone surrogate")]
    )
    async def test_a_key_is_neither_empty_nor_half(self, verb: Any, key: Any, told: str) -> None:
        """In memory and on a server; nothing is kept or sent."""
        memory = MemoryBackend()
        for backend in (memory, RedisBackend.from_url("redis://127.0.0.1:1")):
            with pytest.raises(ValueError, match=told):
                await call(verb, Limiter("10/h", backend, failure="closed"), key, 1)
            await backend.aclose()
        assert len(memory) == 0

    async def test_reset_checks_its_key(self) -> None:
        """As every verb."""
        with pytest.raises(ValueError, match="key is empty"):
            await Limiter("10/h").reset("")


class TestItems:
    @pytest.mark.parametrize("items", ["abc", b"abc"])
    async def test_one_text_is_not_many_keys(self, items: Any) -> None:
        """Its characters are nobody's keys."""
        with pytest.raises(TypeError, match="items must be several keys"):
            await Limiter("10/h").try_acquire_many(items)

    @pytest.mark.parametrize("item", [("a",), ("a", 1, 2), ()])
    async def test_a_pair_is_two(self, item: Any) -> None:
        """A key and its cost."""
        with pytest.raises(ValueError, match="each item must be a key or a tuple"):
            await Limiter("10/h").try_acquire_many(["k", item])

    async def test_what_cannot_be_gone_through_is_a_type_error(self) -> None:
        """There is nothing to decide."""
        for items in (None, 5):
            with pytest.raises(TypeError, match=r"not iterable|items must"):
                await Limiter("10/h").try_acquire_many(items)  # type: ignore[arg-type]

    async def test_many_thousands_are_answered_in_order(self) -> None:
        """However they are divided on the way."""
        limiter = Limiter("3/h")
        decisions = await limiter.try_acquire_many([f"k{number % 2500}" for number in range(10_000)])
        assert [d.key for d in decisions] == [f"k{number % 2500}" for number in range(10_000)]
        assert [d.allowed for d in decisions] == [True] * 7500 + [False] * 2500


class TestMaking:
    def test_needs_no_loop_and_no_server(self) -> None:
        """At import time, say."""
        for backend in (None, "redis://127.0.0.1:1", MemoryBackend(), RedisBackend.from_url("redis://127.0.0.1:1")):
            assert Limiter("10/h", backend).policy == TokenBucket(10, 3600)

    @pytest.mark.parametrize("policy", ["10/s", ["10/s"], ("10/s",), TokenBucket(10), [TokenBucket(10)]])
    def test_takes_a_policy_in_many_forms(self, policy: Any) -> None:
        """Text, a policy, or a sequence of one."""
        assert Limiter(policy).policy == TokenBucket(10)

    @pytest.mark.parametrize("policy", [None, 5, b"10/s", TokenBucket, {"rate": 1}, [None], [5]])
    def test_refuses_what_is_no_policy(self, policy: Any) -> None:
        """A missing row of a table opens no gate."""
        with pytest.raises(TypeError, match="policy must be a policy or policy text such as '100/minute', not "):
            Limiter(policy)

    @pytest.mark.parametrize("policy", ["", "10", "ten a second"])
    def test_refuses_text_that_is_none(self, policy: str) -> None:
        """With what would be right."""
        with pytest.raises(PolicyError, match=r"cannot read the policy .* as in '100/minute burst 20'"):
            Limiter(policy)

    @pytest.mark.parametrize("policy", [[], "10/s;100/h", [TokenBucket(1), TokenBucket(2)]])
    def test_takes_one_policy(self, policy: Any) -> None:
        """Not none and, as yet, not several."""
        with pytest.raises(PolicyError, match=r"a limiter takes one policy, not [02]"):
            Limiter(policy)

    @pytest.mark.parametrize("name", ["", None, 5, b"x", "x" * 101, "\ud800"])
    def test_a_name_is_a_short_text(self, name: Any) -> None:
        """On every backend alike."""
        for backend in (None, "redis://127.0.0.1:1"):
            with pytest.raises((ValueError, TypeError), match="name must"):
                Limiter("10/h", backend, name=name)

    @pytest.mark.parametrize("failure", ["", "Open", None, True, 5])
    def test_failure_is_a_known_word(self, failure: Any) -> None:
        """The error lists them."""
        with pytest.raises(ValueError, match=rf"failure must be 'open', 'closed' or 'local', not {failure!r}"):
            Limiter("10/h", failure=failure)

    @pytest.mark.parametrize("group", ["x", 5, b"x"])
    def test_a_group_is_a_callable(self, group: Any) -> None:
        """Known when it is made, not when it is first asked."""
        with pytest.raises(TypeError, match="group must be a callable"):
            Limiter("10/h", group=group)

    @pytest.mark.parametrize("backend", [5, object(), {}, b"redis://localhost"])
    def test_a_backend_is_a_backend_or_a_url(self, backend: Any) -> None:
        """And for a client there is a way."""
        with pytest.raises(TypeError, match=r"backend must be a RedisBackend, a MemoryBackend or a URL, not .*client="):
            Limiter("10/h", backend)

    @pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis"])
    def test_a_url_says_what_it_is(self, url: str) -> None:
        """The error lists the schemes."""
        with pytest.raises(ValueError, match="must start with one of redis://"):
            Limiter("10/h", url)

    def test_its_repr_tells_what_it_limits(self) -> None:
        """To look at."""
        assert repr(Limiter("10/h", MemoryBackend(), name="api")) == "<Limiter 'api' 10/h on <MemoryBackend keys=0>>"


class TestRedisArguments:
    @pytest.mark.parametrize("deadline", [0, -1, math.nan, math.inf, "1", None, True])
    def test_deadline(self, deadline: Any) -> None:
        """Seconds, more than none."""
        with pytest.raises(ValueError, match="deadline must be a number of seconds, more than 0"):
            RedisBackend.from_url("redis://localhost", deadline=deadline)

    @pytest.mark.parametrize("prefix", ["", "a{b", "}", "x" * 101, None, 5, b"x", "\ud800"])
    def test_prefix(self, prefix: Any) -> None:
        """Without braces, which place keys in a cluster."""
        with pytest.raises((ValueError, TypeError), match="prefix must"):
            RedisBackend.from_url("redis://localhost", prefix=prefix)

    @pytest.mark.parametrize("name", ["max_connections", "shards", "max_backlog"])
    @pytest.mark.parametrize("count", [0, -1, 1.5, "5", True, 10**12])
    def test_counts(self, name: str, count: Any) -> None:
        """Whole, positive, in a range that is told."""
        with pytest.raises(ValueError, match=rf"{name} must be a whole number from 1 to \d+, not {count!r}"):
            RedisBackend.from_url("redis://localhost", **{name: count})

    @pytest.mark.parametrize("value", ["no", 1, None])
    def test_hash_keys(self, value: Any) -> None:
        """Yes or no."""
        with pytest.raises(TypeError, match="hash_keys must be True or False"):
            RedisBackend.from_url("redis://localhost", hash_keys=value)

    @pytest.mark.parametrize("client", [None, "redis://localhost", object(), 5])
    def test_client(self, client: Any) -> None:
        """What it must be, and what came."""
        with pytest.raises(
            TypeError, match=r"client must be a redis\.asyncio\.Redis or a redis\.asyncio\.ConnectionPool"
        ):
            RedisBackend(client=client)

    @pytest.mark.parametrize("url", [None, 5, b"redis://localhost"])
    def test_url_is_text(self, url: Any) -> None:
        """With an example."""
        with pytest.raises(TypeError, match="url must be a text such as 'redis://localhost:6379/0'"):
            RedisBackend.from_url(url)

    @pytest.mark.parametrize(
        "url",
        [
            "redis://:secret@localhost/x",
            "redis://u:secret@localhost:99999",
            "redis://:secret@localhost?foo=1",
            "http://u:secret@h",
        ],
    )
    def test_errors_of_urls_show_no_password(self, url: str) -> None:
        """The URL is named without it."""
        with pytest.raises(ValueError, match="cannot use the URL") as failed:
            RedisBackend.from_url(url)
        assert "secret" not in str(failed.value)


class TestDecisions:
    async def test_an_answer_becomes_seconds(self) -> None:
        """All fields, in their order."""
        decision = await Limiter("10/h", Recorder()).try_acquire("k")
        assert tuple(decision) == (True, "k", 1, 1, 10, 2, 0.0, 3.0, "redis", TokenBucket(10, 3600))
        assert decision.policies == (decision,)
        assert bool(decision)

    async def test_a_decision_is_a_value(self) -> None:
        """It can be copied and sent, and not be changed."""
        decision = await Limiter("10/h").try_acquire("k")
        assert pickle.loads(pickle.dumps(decision)) == decision  # noqa: S301
        with pytest.raises(AttributeError):
            decision.allowed = False  # type: ignore[misc]

    async def test_the_refusal_travels_with_the_error(self) -> None:
        """Also to another process."""
        limiter = Limiter("1/h")
        await limiter.try_acquire("k")
        with pytest.raises(RateLimitExceeded) as failed:
            await limiter.acquire("k", timeout=0)
        copy = pickle.loads(pickle.dumps(failed.value))  # noqa: S301
        assert copy.decision == failed.value.decision
        assert str(copy) == str(failed.value)


UNAVAILABLE = [BackendUnavailable("down"), BackendTimeout("late"), BackendOverloaded("full")]


@pytest.mark.parametrize("error", UNAVAILABLE, ids=lambda error: type(error).__name__)
class TestWithoutAStore:
    async def test_open_admits_and_says_so(self, error: Exception) -> None:
        """Every verb; what is granted is what was asked."""
        limiter = Limiter("10/h", Recorder(error), failure="open")
        granted = {"try_acquire": 3, "acquire": 3, "acquire_up_to": 3, "peek": 0, "refund": 0}
        for name, units in granted.items():
            decision: Decision = await VERBS[name](limiter, "k", 3)
            assert (decision.allowed, decision.source, decision.granted) == (True, "fail_open", units), name
            assert (decision.retry_after, decision.remaining) == (0.0, 10)
        for decision in await limiter.try_acquire_many(["a", ("b", 3)]):
            assert (decision.allowed, decision.source, decision.granted) == (True, "fail_open", decision.cost)
        assert (await limiter.charge("k", 3)).source == (await limiter.reset("k")).source == "fail_open"

    async def test_closed_refuses_and_says_so(self, error: Exception) -> None:
        """Every verb, with a wait to tell."""
        limiter = Limiter("10/h", Recorder(error), failure="closed")
        for name in ("try_acquire", "acquire_up_to", "peek", "refund", "charge"):
            decision: Decision = await VERBS[name](limiter, "k", 3)
            assert (decision.allowed, decision.source, decision.granted) == (False, "fail_closed", 0), name
            assert decision.retry_after
            assert decision.retry_after > 0
        for decision in await limiter.try_acquire_many(["a", ("b", 3)]):
            assert (decision.allowed, decision.source) == (False, "fail_closed")

    async def test_closed_waits_for_nobody(self, error: Exception) -> None:
        """``acquire`` fails at once, with the refusal."""
        limiter = Limiter("10/h", Recorder(error), failure="closed")
        with pytest.raises(RateLimitExceeded, match="the store does not answer") as failed:
            await limiter.acquire("k")
        assert failed.value.decision.source == "fail_closed"


@every_verb
@pytest.mark.parametrize("failure", ["open", "closed"])
async def test_errors_that_only_a_person_can_mend_always_raise(verb: Any, failure: Any) -> None:
    """A missing right opens no gate."""
    limiter = Limiter("10/h", Recorder(BackendError("no right")), failure=failure)
    with pytest.raises(BackendError, match="no right"):
        await call(verb, limiter, "k", 1)


class TestAcquire:
    @pytest.mark.parametrize("timeout", ["1", None.__class__, [1], True])
    def test_a_timeout_is_a_number(self, timeout: Any) -> None:
        """Or None."""
        with pytest.raises(TypeError, match="timeout must be seconds or None"):
            Limiter("10/h").acquire("k", timeout=timeout)

    @pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, -math.inf])
    def test_a_timeout_is_not_negative(self, timeout: float) -> None:
        """Nor is it nothing."""
        with pytest.raises(ValueError, match=r"timeout must be 0 or more seconds"):
            Limiter("10/h").acquire("k", timeout=timeout)

    async def test_an_endless_timeout_is_none(self) -> None:
        """It waits as long as it takes."""
        limiter = Limiter("50/s burst 1")
        for _ in range(3):
            assert await limiter.acquire("k", timeout=math.inf)

    async def test_holds_nothing_when_nobody_waits(self) -> None:
        """No line is left, whoever was served, refused or cancelled."""
        limiter = Limiter("20/s burst 1")
        await limiter.acquire("k")
        waiting = [asyncio.ensure_future(limiter.acquire("k")) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(limiter._line) == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(RateLimitExceeded):
            await limiter.acquire("k", timeout=0)
        assert len(limiter._line) == 0

    async def test_one_whose_turn_does_not_come_is_told(self) -> None:
        """Behind one that waits longer."""
        limiter = Limiter("1/h")
        await limiter.acquire("k")
        first = asyncio.ensure_future(limiter.acquire("k"))
        await asyncio.sleep(0)
        with pytest.raises(RateLimitExceeded, match="its turn did not come") as failed:
            await limiter.acquire("k", timeout=0.02)
        assert not failed.value.decision
        first.cancel()

    async def test_waiting_on_one_key_holds_up_no_other(self) -> None:
        """Each has its own line."""
        limiter = Limiter("1/h")
        await limiter.acquire("k")
        blocked = asyncio.ensure_future(limiter.acquire("k"))
        await asyncio.sleep(0)
        assert await limiter.acquire("other")
        blocked.cancel()


class TestClosing:
    async def test_closes_the_backend_that_it_made(self) -> None:
        """From nothing: what it knew is forgotten."""
        async with Limiter("5/h") as limiter:
            await limiter.try_acquire("k", 5)
        assert (await limiter.peek("k")).remaining == 5

    async def test_leaves_the_applications_backend_open(self) -> None:
        """Others may use it."""
        backend = Recorder()
        async with Limiter("5/h", backend):
            pass
        await Limiter("5/h", backend).aclose()
        assert backend.closed == 0
