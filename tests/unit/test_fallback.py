"""Decisions without the store: by the policies `open`, `closed` and `local`, on a store that fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from aiolimit import (
    BackendError,
    BackendUnavailable,
    CircuitOpen,
    Decision,
    FixedWindow,
    Limiter,
    MemoryBackend,
    RateLimitExceeded,
    TokenBucket,
)
from aiolimit.algorithms import CHARGE
from aiolimit.backends import Place
from aiolimit.fallback import Fallback, scaled
from aiolimit.policies import Policy
from aiolimit.testing import FakeClock, FaultyBackend

from ..conformance.stores import kind_name, policies

Verb = Callable[[Limiter], Awaitable[Decision]]

VERBS: dict[str, Verb] = {
    "try_acquire": lambda limiter: limiter.try_acquire("k", 3),
    "acquire_up_to": lambda limiter: limiter.acquire_up_to("k", 3),
    "peek": lambda limiter: limiter.peek("k", 3),
    "refund": lambda limiter: limiter.refund("k", 3),
    "charge": lambda limiter: limiter.charge("k", 3),
    "reset": lambda limiter: limiter.reset("k"),
}


async def until(true: Callable[[], object]) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0)


async def settled(limiter: Limiter) -> None:
    """Wait until the store was told of what it is owed."""
    await until(lambda: limiter._settling is None and not (limiter._fallback and limiter._fallback.owes))


async def used(limiter: Limiter, key: str = "k") -> int:
    """How many units of the key the store knows of."""
    return limiter.policy.limit - (await limiter.peek(key)).remaining


class Store(MemoryBackend):
    """A store that charges and loses the answer, or refuses to charge some keys."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BackendError | None = None
        self.when_charging: BackendError | None = None
        self.lost: dict[Any, BackendError] = {}
        self.charged: list[Any] = []

    def place(self, name: str, policy: Policy, group: Any = None) -> Place:
        """Like that of memory, but for the faults."""
        inner = super().place(name, policy, group)
        return Place(partial(self._one, inner), partial(self._several, inner), inner.decided_without)

    def _one(self, inner: Place, op: int, key: Any, cost: int, deadline: float | None = None) -> Any:
        return self._several(inner, op, [key], [cost])[0]

    def _several(self, inner: Place, op: int, keys: Sequence[Any], costs: Sequence[int]) -> Any:
        if self.error is not None:
            raise self.error
        if op == CHARGE:
            if self.when_charging is not None:
                raise self.when_charging
            self.charged += keys
        answers = inner.ask_many(op, keys, costs)
        for key in keys:
            if op == CHARGE and key in self.lost:
                raise self.lost[key]
        return answers


class TestOpen:
    @pytest.mark.parametrize("verb", VERBS)
    async def test_admits_whatever_is_asked(self, verb: str) -> None:
        """And says that the store had no part in it."""
        backend = FaultyBackend()
        backend.fail()
        decision = await VERBS[verb](Limiter("10/h", backend))
        assert (decision.allowed, decision.source, decision.retry_after) == (True, "fail_open", 0.0)
        assert decision.granted == (3 if verb in {"try_acquire", "acquire_up_to"} else 0)
        assert backend.decided_without == {"fail_open": 1}

    async def test_never_grants_more_than_the_limit(self) -> None:
        """Of more than can ever fit."""
        backend = FaultyBackend()
        backend.fail()
        assert (await Limiter("10/h", backend).acquire_up_to("k", 1_000)).granted == 10

    async def test_holds_for_batches_waiting_and_contexts(self) -> None:
        """Each item has a decision of its own, and nobody waits."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter("10/h", backend)
        decisions = await limiter.try_acquire_many([("k", 3), "l"])
        assert [(one.key, one.granted, one.source) for one in decisions] == [
            ("k", 3, "fail_open"),
            ("l", 1, "fail_open"),
        ]
        assert (await limiter.acquire("k", 10, timeout=0)).source == "fail_open"
        async with limiter.acquire("k") as decision:
            assert decision.source == "fail_open"
        assert backend.decided_without == {"fail_open": 4}


class TestClosed:
    @pytest.mark.parametrize("verb", VERBS)
    async def test_refuses_whatever_is_asked(self, verb: str) -> None:
        """And tells when to come again."""
        backend = FaultyBackend()
        backend.fail()
        decision = await VERBS[verb](Limiter("10/h", backend, failure="closed"))
        assert (decision.allowed, decision.source, decision.granted) == (False, "fail_closed", 0)
        assert decision.retry_after
        assert backend.decided_without == {"fail_closed": 1}

    async def test_acquire_gives_up_at_once(self) -> None:
        """With or without a timeout, awaited or entered: nobody knows how long to wait."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter("10/h", backend, failure="closed")
        for timeout in (None, 60, 0):
            with pytest.raises(RateLimitExceeded) as found:
                await limiter.acquire("k", timeout=timeout)
            assert found.value.decision.source == "fail_closed"
        with pytest.raises(RateLimitExceeded):
            async with limiter.acquire("k"):
                pass
        assert backend.asked == 4


class TestChoice:
    @pytest.mark.parametrize("failure", ["open", "closed", "local"])
    async def test_a_call_has_its_own(self, failure: Any) -> None:
        """Whatever the limiter's is."""
        backend = FaultyBackend()
        backend.fail()
        expected = {"open": "fail_open", "closed": "fail_closed", "local": "fallback"}[failure]
        for other in ("open", "closed", "local"):
            limiter = Limiter("10/h", backend, failure=other)
            assert (await limiter.try_acquire("k", failure=failure)).source == expected
            (decision,) = await limiter.try_acquire_many(["k"], failure=failure)
            assert decision.source == expected
            if failure != "closed":
                assert (await limiter.acquire("k", failure=failure)).source == expected

    async def test_a_wrong_one_is_found_before_the_outage(self) -> None:
        """Not in it."""
        limiter = Limiter("10/h", FaultyBackend())
        wrong: Any = "opne"
        with pytest.raises(ValueError, match="'opne'"):
            Limiter("10/h", failure=wrong)
        with pytest.raises(ValueError, match="'opne'"):
            await limiter.try_acquire("k", failure=wrong)
        with pytest.raises(ValueError, match="'opne'"):
            await limiter.try_acquire_many(["k"], failure=wrong)
        with pytest.raises(ValueError, match="'opne'"):
            await limiter.acquire("k", failure=wrong)
        assert await used(limiter) == 0

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("failure", ["open", "closed", "local"])
    async def test_a_mistake_is_nobody_s_choice(self, failure: Any, verb: str) -> None:
        """It raises."""
        backend = FaultyBackend()
        backend.fail(BackendError("denies a right"))
        limiter = Limiter("10/h", backend, failure=failure)
        with pytest.raises(BackendError, match="denies a right"):
            await VERBS[verb](limiter)
        with pytest.raises(BackendError, match="denies a right"):
            await limiter.try_acquire_many(["k"])
        with pytest.raises(BackendError, match="denies a right"):
            await limiter.acquire("k")
        assert backend.decided_without == {}


class TestLocal:
    @pytest.mark.parametrize("policy", policies(100), ids=kind_name)
    async def test_decides_by_the_policy_at_its_share(self, policy: Policy) -> None:
        """A quarter of the hundred, then no, with the time to wait."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter(policy, backend, failure="local", share=0.25)
        decisions = [await limiter.try_acquire("k") for _ in range(30)]
        assert sum(map(bool, decisions)) == 25
        assert {decision.source for decision in decisions} == {"fallback"}
        assert decisions[0].limit == 100
        assert decisions[-1].retry_after
        assert backend.decided_without == {"fallback": 30}

    async def test_all_verbs_see_each_other_s_units(self) -> None:
        """As they do on the store."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter("100/h", backend, failure="local", share=0.2)
        assert (await limiter.try_acquire("k", 5)).remaining == 15
        assert (await limiter.acquire_up_to("k", 100)).granted == 15
        assert not await limiter.peek("k")
        assert (await limiter.refund("k", 10)).remaining == 10
        assert (await limiter.charge("k", 10)).remaining == 0
        assert [bool(one) for one in await limiter.try_acquire_many(["k", "l"])] == [False, True]
        await limiter.reset("k")
        assert (await limiter.acquire("k")).remaining == 19
        assert set(backend.decided_without) == {"fallback"}

    async def test_a_cost_beyond_the_share_is_refused_and_not_an_error(self) -> None:
        """The store could admit it; so come again."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter("100/h", backend, failure="local", share=0.25)
        for decision in (await limiter.try_acquire("k", 26), await limiter.peek("k", 26)):
            assert (decision.allowed, decision.remaining, decision.granted) == (False, 25, 0)
            assert decision.retry_after == pytest.approx(1.0)
        assert (await limiter.try_acquire("k", 25)).allowed

    @pytest.mark.parametrize("verb", ["try_acquire", "acquire_up_to", "peek"])
    async def test_a_share_of_less_than_a_unit_refuses(self, verb: str) -> None:
        """A tenth of three is none; asking again after a second finds out whether the store is back."""
        backend = FaultyBackend()
        backend.fail()
        decision = await VERBS[verb](Limiter("3/h", backend, failure="local", share=0.1))
        assert (decision.allowed, decision.granted, decision.source) == (False, 0, "fallback")
        assert decision.retry_after == pytest.approx(1.0)

    @pytest.mark.parametrize("spend", ["try_acquire", "acquire_up_to", "charge", "many"])
    async def test_knows_what_was_admitted_before_the_outage(self, spend: str) -> None:
        """So that an outage is no second limit, whichever verb spent it."""
        backend = FaultyBackend()
        limiter = Limiter("100/h", backend, failure="local", share=0.25)
        if spend == "many":
            await limiter.try_acquire_many([("k", 10), ("k", 15)])
        else:
            await getattr(limiter, spend)("k", 25)
        backend.fail()
        assert not await limiter.try_acquire("k")
        assert await limiter.try_acquire("l")

    async def test_leaves_as_soon_as_the_store_answers(self) -> None:
        """The very next decision is the store's."""
        backend = FaultyBackend()
        limiter = Limiter("100/h", backend, failure="local", share=0.25)
        backend.fail()
        assert (await limiter.try_acquire("k")).source == "fallback"
        backend.recover()
        assert (await limiter.try_acquire("k")).source == "memory"

    async def test_waits_as_its_share_allows(self) -> None:
        """A waiter is served within the outage, in its turn, and asks once for each wait."""
        backend = FaultyBackend()
        backend.fail()
        limiter = Limiter("40/s burst 4", backend, failure="local", share=0.25)  # 10/s, one at once
        start = asyncio.get_running_loop().time()
        decisions = await asyncio.gather(*(limiter.acquire("k") for _ in range(5)))
        assert {decision.source for decision in decisions} == {"fallback"}
        assert asyncio.get_running_loop().time() - start >= 0.39
        assert backend.asked <= 5 + 4 * 2

    @pytest.mark.parametrize(
        ("policy", "part"),
        [
            (TokenBucket(100, 60, burst=20), TokenBucket(25, 60, burst=5)),
            (TokenBucket(3, 1, burst=6), TokenBucket(0.75, 1, burst=1)),
            (FixedWindow(10, 60), FixedWindow(2, 60)),
        ],
        ids=str,
    )
    def test_a_share_is_rounded_down(self, policy: Policy, part: Policy) -> None:
        """Several processes together stay within the whole."""
        assert scaled(policy, 0.25) == part

    @pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan"), True, "1"])
    def test_a_wrong_share_is_an_error(self, share: Any) -> None:
        """When the limiter is made."""
        with pytest.raises(ValueError, match="share"):
            Limiter("10/h", failure="local", share=share)

    def test_keeps_so_many_keys_and_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of what it decides by and of what it owes, whatever the callers invent."""
        monkeypatch.setattr("aiolimit.fallback._MAX_KEYS", 50)
        fallback = Fallback(TokenBucket(10, 3600), 1.0)
        for number in range(500):
            fallback.decide(0, f"k{number}", 1)
        assert len(fallback.take_owed()) <= 50


class TestSettling:
    async def test_the_store_is_told_of_what_was_admitted(self) -> None:
        """Everything that was, and nothing that was refused."""
        backend = FaultyBackend()
        limiter = Limiter("100/h", backend, failure="local", share=0.25)
        backend.fail()
        for _ in range(30):
            await limiter.try_acquire("k")
        await limiter.charge("l", 7)
        backend.recover()
        assert (await limiter.try_acquire("other")).source == "memory"
        await settled(limiter)
        assert [await used(limiter, key) for key in ("k", "l", "other")] == [25, 7, 1]

    async def test_what_was_given_back_meanwhile_is_not_charged(self) -> None:
        """Neither what was refunded nor what was reset."""
        backend = FaultyBackend()
        limiter = Limiter("100/h", backend, failure="local")
        backend.fail()
        await limiter.try_acquire("k", 5)
        await limiter.refund("k", 2)
        await limiter.try_acquire("l", 5)
        await limiter.reset("l")
        backend.recover()
        await limiter.peek("m")
        await settled(limiter)
        assert [await used(limiter, key) for key in ("k", "l")] == [3, 0]

    async def test_a_lost_answer_is_not_asked_for_again(self) -> None:
        """It may have been charged: once or never, but not twice."""
        store = Store()
        limiter = Limiter("100/h", store, failure="local")
        store.error = CircuitOpen("open")
        await limiter.try_acquire("k", 5)
        store.error, store.lost = None, {"k": BackendUnavailable("the connection was cut")}
        for _ in range(5):
            await limiter.peek("other")
            await settled(limiter)
        assert store.charged == ["k"]
        assert await used(limiter) == 5

    async def test_a_mistake_with_one_key_is_not_paid_for_by_the_others(self) -> None:
        """A foreign value, say, in one of seven hundred: each of the others is charged, and once."""
        store = Store()
        limiter = Limiter("100/h", store, failure="local")
        store.error = CircuitOpen("open")
        keys = [f"k{number}" for number in range(700)]
        await limiter.try_acquire_many(keys)
        store.error, store.lost = None, {"k333": BackendError("holds a foreign value")}
        for _ in range(5):
            await limiter.peek("other")
            await settled(limiter)
        assert sorted(store.charged) == sorted(keys)

    async def test_what_was_not_sent_is_charged_later(self) -> None:
        """The breaker opened again in between."""
        store = Store()
        limiter = Limiter("100/h", store, failure="local")
        store.error = CircuitOpen("open")
        await limiter.try_acquire("k", 5)
        store.error, store.when_charging = None, CircuitOpen("open")
        await limiter.peek("other")
        await until(lambda: limiter._settling is None)
        assert store.charged == []
        store.when_charging = None
        await limiter.peek("other")
        await settled(limiter)
        assert await used(limiter) == 5

    async def test_one_task_at_most_tells_the_store(self) -> None:
        """However many callers come back at once."""
        backend = FaultyBackend()
        limiter = Limiter("100/h", backend, failure="local")
        backend.fail()
        await limiter.try_acquire_many([f"k{number}" for number in range(300)])
        backend.recover()
        backend.delay = 0.02
        before = len(asyncio.all_tasks())
        waiting = [asyncio.ensure_future(limiter.try_acquire("k")) for _ in range(100)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(waiting)
        assert sum(task.get_name() == "aiolimit settle" for task in asyncio.all_tasks()) <= 1
        await settled(limiter)
        assert len(asyncio.all_tasks()) == before

    async def test_nothing_is_owed_by_the_other_policies(self) -> None:
        """They do not keep account."""
        for failure in ("open", "closed"):
            store = Store()
            limiter = Limiter("100/h", store, failure=failure)
            store.error = CircuitOpen("open")
            await limiter.try_acquire("k", 5)
            store.error = None
            await limiter.peek("k")
            await asyncio.sleep(0)
            assert store.charged == []

    @pytest.mark.parametrize("policy", policies(20, 0.2), ids=kind_name)
    async def test_only_what_still_counts_is_charged(self, policy: Policy) -> None:
        """After an outage of five windows at full load, the wait is that of one window and not of five."""
        backend = FaultyBackend()
        limiter = Limiter(policy, backend, failure="local")
        backend.fail()
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.0
        admitted = 0
        while loop.time() < end:
            admitted += (await limiter.try_acquire("k")).allowed
            await asyncio.sleep(0.001)
        assert admitted > 60
        backend.recover()
        await limiter.peek("other")
        await settled(limiter)
        retry_after = (await limiter.peek("k")).retry_after
        assert retry_after is not None
        assert retry_after <= 0.25

    async def test_time_that_passed_meanwhile_is_not_paid_for_twice(self) -> None:
        """A debt never grows beyond what was admitted: after one period without callers the key is fresh."""
        clock = FakeClock(1_000.0)
        backend = FaultyBackend(MemoryBackend(clock=clock))
        limiter = Limiter("100/h", backend, failure="local")
        backend.fail()
        await limiter.try_acquire("k", 100)
        backend.recover()
        await limiter.peek("other")
        await settled(limiter)
        assert await used(limiter) == 100
        clock.advance(3_600)
        assert await used(limiter) == 0


@pytest.mark.parametrize("failure", ["open", "closed", "local"])
async def test_a_timeout_of_the_caller_s_own_refuses(failure: Any) -> None:
    """`acquire` with less time than the store's deadline ends in that time whatever the policy, and decides nothing."""
    backend = FaultyBackend(deadline=30)
    backend.delay = 60
    limiter = Limiter("100/h", backend, failure=failure)
    async with asyncio.timeout(10):
        with pytest.raises(RateLimitExceeded):
            await limiter.acquire("k", timeout=0.05)
    assert backend.decided_without == {}
