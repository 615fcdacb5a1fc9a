"""What time does to a key: windows and their edges, refill, debts, expiry, and clocks that step."""

from __future__ import annotations

import math
import time

import pytest

from aiolimit import FixedWindow, Limiter, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import Policy

from .conftest import LimiterOf, in_memory, on_servers
from .stores import HOUR, KINDS, MemoryStore, ServerStore, Store, kind_name, policies

DAY = 86_400

every_kind = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


async def admitted(limiter: Limiter, tries: int, key: str = "k", cost: int = 1) -> int:
    """How many of so many tries are admitted."""
    return sum(map(bool, await limiter.try_acquire_many([(key, cost)] * tries)))


class TestWindowEdge:
    @pytest.mark.parametrize(
        ("kind", "after"), [(TokenBucket, 0), (FixedWindow, 100), (SlidingWindow, 0), (SlidingLog, 0)]
    )
    async def test_only_a_fixed_window_lets_a_second_burst_through(
        self, kind: type[Policy], after: int, store: Store, limiter_of: LimiterOf
    ) -> None:
        """A hundred just before the edge of a minute, and a hundred more just after it."""
        limiter = limiter_of(kind(100, 60))
        store.at(59.5)
        assert await admitted(limiter, 100) == 100
        store.at(60.02)
        assert await admitted(limiter, 100) == after

    async def test_a_fixed_window_admits_its_limit_in_every_aligned_window(
        self, store: Store, limiter_of: LimiterOf
    ) -> None:
        """Never more, wherever in the window the calls come."""
        limiter = limiter_of("100/m fixed")
        for window in range(3):
            total = 0
            for second in (0, 10, 30, 55):
                store.at(60 * window + second)
                total += await admitted(limiter, 40)
            assert total == 100

    async def test_expiry_only_falls_within_a_fixed_window(self, store: Store, limiter_of: LimiterOf) -> None:
        """A client well within the limit is never locked out by its own regularity."""
        limiter = limiter_of("10/2s fixed")
        last_window, last_reset = -1, 0.0
        for number in range(20):
            seconds = number / 2
            store.at(seconds)
            decision = await limiter.try_acquire("k")
            assert decision
            window = int(seconds // 2)
            if window == last_window:
                assert decision.reset_after < last_reset
                if isinstance(store, ServerStore):
                    (pttl,) = store.pttls().values()
                    assert pttl <= last_reset * 1000
            assert decision.reset_after <= 2 - seconds % 2
            last_window, last_reset = window, decision.reset_after

    async def test_a_day_starts_at_midnight_utc(
        self, store: Store, limiter_of: LimiterOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever the time zone of this process, and however long the civil day."""
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            limiter = limiter_of("5/d fixed")
            # The days on which clocks in Paris are moved, in 2026: 29 March and 25 October.
            for day in (0, 87, 297):
                store.at(day * DAY + DAY - 0.5)
                assert await admitted(limiter, 6) == 5
                assert (await limiter.peek("k")).reset_after <= 0.5
                store.at((day + 1) * DAY + 0.02)
                assert await admitted(limiter, 6) == 5
                reset_after = (await limiter.peek("k")).reset_after
                assert DAY - 30 < reset_after < DAY
        finally:
            monkeypatch.undo()
            time.tzset()

    async def test_a_sliding_window_weighs_the_last_one_by_its_overlap(
        self, store: Store, limiter_of: LimiterOf
    ) -> None:
        """Nine units in the hour before count 8.85 a minute into this one, of which one more fits under ten."""
        limiter = limiter_of("10/h sliding")
        assert await admitted(limiter, 1) == 1
        store.at(59 * 60)
        assert await admitted(limiter, 8) == 8
        store.at(61 * 60)
        assert await admitted(limiter, 10) == 1

    async def test_a_sliding_window_forgets_after_two_windows(self, store: Store, limiter_of: LimiterOf) -> None:
        """What lies further back has no weight."""
        limiter = limiter_of("10/m sliding")
        store.at(59)
        await admitted(limiter, 10)
        store.at(120.01)
        assert await admitted(limiter, 11) == 10

    async def test_a_sliding_log_counts_a_half_open_window(self, store: Store, limiter_of: LimiterOf) -> None:
        """A unit that is exactly one window old has gone."""
        limiter = limiter_of("1/m log")
        first = await limiter.try_acquire("k")
        refused = await limiter.try_acquire("k")
        assert first.reset_after == 60
        assert refused.retry_after
        if isinstance(store, MemoryStore):
            store.at(59.999999)
            assert not await limiter.try_acquire("k")
            store.at(60)
        else:
            store.advance(refused.retry_after)
        assert await limiter.try_acquire("k")

    async def test_a_sliding_log_tells_the_oldest_and_the_newest_apart(
        self, store: Store, limiter_of: LimiterOf
    ) -> None:
        """Hits at 0 s and 10 s of two a minute, refused at 20 s: one more in 40 s, fresh in 50 s."""
        limiter = limiter_of("2/m log")
        for seconds in (0, 10):
            store.at(seconds)
            assert await limiter.try_acquire("k")
        store.at(20)
        refused = await limiter.try_acquire("k")
        assert not refused
        assert refused.retry_after == pytest.approx(40, abs=2)
        assert refused.reset_after == pytest.approx(50, abs=2)
        assert refused.retry_after
        store.advance(refused.retry_after)
        assert [bool(await limiter.try_acquire("k")) for _ in range(2)] == [True, False]


class TestRefill:
    @every_kind
    async def test_a_client_that_keeps_trying_gets_its_share(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """Two in four seconds, one try a second for twenty: about ten, refusals or not."""
        limiter = limiter_of(kind(2, 4))
        total = 0
        for second in range(20):
            store.at(second * 1.01)  # a server's time goes on between two steps, now more, now less
            total += bool(await limiter.try_acquire("k"))
        if kind is SlidingWindow:  # an estimate; after a full window it admits one fewer in each
            assert 5 <= total <= 11
        else:
            assert 9 <= total <= 11

    async def test_polling_faster_than_it_refills_costs_nothing(self, store: Store, limiter_of: LimiterOf) -> None:
        """A unit a minute, asked for every half second for ten minutes: ten units, at their times."""
        limiter = limiter_of("1/m burst 2")
        assert await limiter.try_acquire("k", 2)
        step = 0.5 if isinstance(store, MemoryStore) else 7.5
        grants = []
        for number in range(1, int(608 / step) + 1):
            store.at(number * step)
            if await limiter.try_acquire("k"):
                grants.append(number * step)
        assert len(grants) == 10
        assert all(abs(when - 60 * (index + 1)) <= step for index, when in enumerate(grants))

    @in_memory
    async def test_a_tight_loop_is_granted_to_the_microsecond(self, store: Store, limiter_of: LimiterOf) -> None:
        """At three a second a taken bucket has its first unit after a third of a second."""
        limiter = limiter_of("3/s")
        assert await admitted(limiter, 4) == 3
        us = 0
        while True:
            us += 100 if us < 333_000 else 1
            store.at(us / 1_000_000)
            if await limiter.try_acquire("k"):
                break
        assert us == 333_334

    async def test_one_unit_in_fifteen_seconds(self, store: Store, limiter_of: LimiterOf) -> None:
        """Three taken, twenty seconds idle: one."""
        limiter = limiter_of(TokenBucket(1, 15, 3))
        assert await admitted(limiter, 4) == 3
        store.at(20)
        assert await admitted(limiter, 4) == 1

    @in_memory
    async def test_small_gains_of_a_large_bucket_are_kept(self, store: Store, limiter_of: LimiterOf) -> None:
        """A billion units, one in a hundred thousand seconds; and a million, one a day: refused a thousand times, each
        unit still comes at its time.
        """
        for policy in (TokenBucket(1, 100_000, 10**9), TokenBucket(1, DAY, 10**6)):
            store.at(0)
            limiter = limiter_of(policy, f"of {policy.burst}")
            await limiter.try_acquire("k", policy.limit)
            refused = await limiter.try_acquire("k", 1)
            assert refused.retry_after == pytest.approx(policy.per, rel=0.01)
            for number in range(1, 1001):
                store.at(number * policy.per / 1001)
                assert not await limiter.try_acquire("k", 1)
            store.at(policy.per * 1.00001)
            assert [bool(await limiter.try_acquire("k")) for _ in range(2)] == [True, False]

    @on_servers
    async def test_fast_rates_admit_no_more_than_they_say(self, store: ServerStore, limiter_of: LimiterOf) -> None:
        """Three hundred calls one after another: a burst, and what really passing time gives; and the key is there."""
        for policy in (TokenBucket(20, 1, 1), TokenBucket(100, 1, 49), TokenBucket(10**6, 1, 5), TokenBucket(1, 0.001)):
            limiter = limiter_of(policy, str(policy))
            begin = time.monotonic()
            total = 0
            for _ in range(300):
                decision = await limiter.try_acquire("k")
                total += bool(decision)
            passed = time.monotonic() - begin
            assert total <= policy.limit + policy.rate / policy.per * passed + 1
            assert total >= policy.limit

    @every_kind
    async def test_a_window_of_a_millisecond_still_limits(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """One call has one time, so exactly the limit goes."""
        assert await admitted(limiter_of(kind(5, 0.001)), 200) == 5


class TestExpiry:
    @on_servers
    @pytest.mark.parametrize(
        "policy",
        [
            *policies(10, HOUR),
            *policies(3, 1),
            SlidingLog(1000, 60),
            TokenBucket(1, 15, 3),
            *policies(3, 10 * 365 * DAY),
        ],
        ids=str,
    )
    async def test_covers_the_state_and_no_more(
        self, policy: Policy, store: ServerStore, limiter_of: LimiterOf
    ) -> None:
        """After every verb the key lives until it is fresh, rounded up to the millisecond, and goes then."""
        limiter = limiter_of(policy)
        many = policy.limit * 2
        verbs = [(limiter.try_acquire, 1), (limiter.charge, many), (limiter.refund, 1), (limiter.try_acquire, 1)]
        for verb, cost in verbs:
            begin = time.monotonic()
            decision = await verb("k", cost)
            pttls = store.pttls()
            slack = (time.monotonic() - begin) * 1000 + 2
            if decision.reset_after > 1:
                (pttl,) = pttls.values()
                reset_ms = math.ceil(decision.reset_after * 1000)
                assert reset_ms - slack <= pttl <= reset_ms + 1

    @on_servers
    @every_kind
    async def test_a_key_without_an_expiry_heals(
        self, kind: type[Policy], store: ServerStore, limiter_of: LimiterOf
    ) -> None:
        """Somebody took the expiry away from a used-up key: the next call gives it back, refusing or looking."""
        for limit in (10, 500):
            limiter = limiter_of(kind(limit, 60))
            for ask in (limiter.try_acquire, limiter.peek):
                store.admin.flushall()
                store.at(0)
                await limiter.charge("k", limit)
                (key,) = store.contents()
                store.admin.persist(key)
                refused = await ask("k", 1)
                assert not refused
                assert 0 < store.admin.pttl(key) <= refused.reset_after * 1000 + 1
                assert refused.retry_after
                store.advance(refused.retry_after)
                assert await limiter.try_acquire("k")

    @on_servers
    @every_kind
    async def test_used_keys_are_gone_after_their_time(
        self, kind: type[Policy], store: ServerStore, limiter_of: LimiterOf
    ) -> None:
        """Whatever was asked; and asking in vain makes none."""
        limiter = limiter_of(kind(5, 60))
        for number in range(50):
            key = f"k{number}"
            await limiter.try_acquire_many([key, key, (key, 5)])
            await limiter.acquire_up_to(key, 3)
            await limiter.peek(f"peeked {number}")
            await limiter.refund(f"refunded {number}")
        assert store.keys() == 50
        store.advance(121)
        assert store.keys() == 0

    @every_kind
    async def test_outlasts_a_shorter_window_of_the_same_name(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """While a changed policy is rolled out, what one limiter charged for a day is not gone with the other's second,
        whichever of them was made last and whoever else is asked in between.
        """
        long, short = limiter_of(kind(10, DAY)), limiter_of(kind(10, 1))
        await short.try_acquire("k")
        await long.try_acquire("k", 9)
        store.advance(3)
        for number in range(10):
            await short.peek(f"other {number}")
        assert (await long.peek("k")).remaining <= 1


class TestDebt:
    async def test_of_a_bucket_is_paid_off_at_its_rate(self, store: Store, limiter_of: LimiterOf) -> None:
        """A hundred at one a second: fifty reserved, 450 more used; one fits after 401 s, the key lives for 500 s."""
        limiter = limiter_of("1/s burst 100")
        await limiter.try_acquire("k", 50)
        charged = await limiter.charge("k", 450)
        assert charged.reset_after == pytest.approx(500, abs=2)
        refused = await limiter.try_acquire("k")
        assert refused.retry_after == pytest.approx(401, abs=2)
        store.at(395)
        assert not await limiter.try_acquire("k")
        assert refused.retry_after
        store.at(refused.retry_after + 2)
        assert await limiter.try_acquire("k")

    async def test_a_refused_large_cost_leaves_what_there_is(self, store: Store, limiter_of: LimiterOf) -> None:
        """Two left of a million: asking for a million takes nothing."""
        limiter = limiter_of("10/h burst 1000000")
        await limiter.try_acquire("k", 999_998)
        assert not await limiter.try_acquire("k", 10**6)
        assert (await limiter.peek("k")).remaining == 2
        assert await limiter.try_acquire("k", 2)

    async def test_reserve_then_correct(self, store: Store, limiter_of: LimiterOf) -> None:
        """Eighty reserved, ten used: ninety remain; a thousand more given back leave the key fresh."""
        limiter = limiter_of("100/h log")
        await limiter.try_acquire("k", 80)
        assert (await limiter.refund("k", 70)).remaining == 90
        assert (await limiter.refund("k", 1000)).remaining == 100

    @every_kind
    async def test_of_any_size_stays_in_range_and_heals(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """Nothing overflows; the numbers stay numbers; reset helps."""
        limiter = limiter_of(kind(10, 60))
        for _ in range(3):
            decision = await limiter.charge("k", 2**53 - 1)
            assert (decision.allowed, decision.remaining) == (True, 0)
        refused = await limiter.try_acquire("k")
        assert not refused
        assert refused.retry_after
        assert math.isfinite(refused.retry_after)
        assert (await limiter.reset("k")).remaining == 10


class TestClockSteps:
    @every_kind
    async def test_back_by_an_hour_locks_nobody_out(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """Three of ten used, then the clock is an hour behind: seven remain, and ten fit after one period and a bit."""
        limiter = limiter_of(kind(10, 10))
        store.at(7200)
        assert await admitted(limiter, 3) == 3
        store.at(3600)
        peeked = await limiter.peek("k", 8)
        assert peeked.remaining in (7, 8)
        decision = await limiter.try_acquire("k", 7)
        assert decision
        refused = await limiter.try_acquire("k", 5)
        assert not refused
        assert refused.retry_after
        assert refused.retry_after <= 20
        store.advance(refused.retry_after)
        assert await limiter.try_acquire("k", 5)

    @every_kind
    async def test_back_by_an_hour_mints_nothing(self, kind: type[Policy], store: Store, limiter_of: LimiterOf) -> None:
        """A key that is used up stays so, and its expiry does not grow by an hour."""
        limiter = limiter_of(kind(10, 60))
        store.at(7200)
        assert await admitted(limiter, 11) == 10
        store.at(3600)
        assert await admitted(limiter, 11) == 0
        assert (await limiter.peek("k")).reset_after <= 120
        if isinstance(store, ServerStore):
            assert max(store.pttls().values()) <= 120_000

    @every_kind
    async def test_forward_by_an_hour_gives_one_burst(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """As an hour of waiting does, and nothing more when it steps back."""
        limiter = limiter_of(kind(10, 60))
        assert await admitted(limiter, 11) == 10
        store.at(3600)
        assert await admitted(limiter, 11) == 10
        store.at(1)
        assert await admitted(limiter, 11) == 0

    @every_kind
    @pytest.mark.parametrize("step", [-0.05, 0.05])
    async def test_jitter_mints_nothing_and_refuses_nobody_for_long(
        self, kind: type[Policy], step: float, store: Store, limiter_of: LimiterOf
    ) -> None:
        """A clock that is 50 ms off and comes back: what fitted fits, what did not fits at most so much later."""
        limiter = limiter_of(kind(100, 30))
        store.at(10)
        assert await admitted(limiter, 60) == 60
        store.at(10 + step)
        assert await admitted(limiter, 20) == 20
        before = await limiter.peek("k", 30)
        store.at(10)
        after = await limiter.peek("k", 30)
        assert after.remaining == before.remaining == 20
        assert before.retry_after is not None
        assert after.retry_after is not None
        assert after.retry_after <= before.retry_after + 0.05 + (2 if isinstance(store, ServerStore) else 0)

    @every_kind
    async def test_a_stored_time_from_the_future_heals(
        self, kind: type[Policy], store: Store, limiter_of: LimiterOf
    ) -> None:
        """A refusal re-dates it once; one period later the key works again while the clock is still behind."""
        limiter = limiter_of(kind(10, 10))
        store.at(3600)
        await limiter.charge("k", 10)
        store.at(5)
        refused = await limiter.try_acquire("k")
        assert not refused
        assert refused.retry_after
        assert refused.retry_after <= 10.001
        store.advance(20)
        assert await admitted(limiter, 11) == 10

    @every_kind
    async def test_clocks_of_clients_decide_nothing(
        self,
        kind: type[Policy],
        store: Store,
        limiter_of: LimiterOf,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Two limiters, one of a process whose wall clock is ten seconds behind: four a second, not eight."""
        fast, slow = limiter_of(kind(4, 60)), limiter_of(kind(4, 60))
        store.at(1)
        total = await admitted(fast, 4)
        true_time, true_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: true_time() - 10)
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() - 10**10)
        total += await admitted(slow, 1)
        total += await admitted(fast, 5)
        assert total == 4
