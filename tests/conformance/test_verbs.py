"""What every verb answers, for every policy, on every backend and event loop."""

from __future__ import annotations

import pytest

from aiolimit import Decision, Limiter, PolicyError

from .conftest import LimiterOf
from .stores import HOUR, MemoryStore, Store

pytestmark = pytest.mark.every_loop


def check(decision: Decision) -> None:
    """The ranges that every decision keeps."""
    assert type(decision.remaining) is int
    assert type(decision.granted) is int
    assert 0 <= decision.remaining <= decision.limit
    assert 0 <= decision.granted <= decision.cost
    assert decision.reset_after >= 0
    assert bool(decision) is decision.allowed
    if decision.allowed:
        assert decision.retry_after == 0.0
    else:
        assert decision.retry_after is None or decision.retry_after > 0
        assert decision.granted == 0


async def drain(limiter: Limiter, key: str = "k") -> None:
    """Use a key's limit up."""
    await limiter.try_acquire(key, limiter.policy.limit)


async def remaining(limiter: Limiter, key: str | bytes = "k") -> int:
    """What fits now."""
    return (await limiter.peek(key)).remaining


class TestTryAcquire:
    async def test_admits_the_limit_and_then_refuses(self, limiter: Limiter) -> None:
        """Ten of twelve at once."""
        decisions = [await limiter.try_acquire("k") for _ in range(12)]
        assert [d.allowed for d in decisions] == [True] * 10 + [False] * 2
        assert [d.remaining for d in decisions] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]

    async def test_answers_keep_their_ranges(self, limiter: Limiter) -> None:
        """From fresh to refused, whatever the cost."""
        for cost in (3, 0, 5, 4, 2, 1, 10):
            check(await limiter.try_acquire("k", cost))

    async def test_tells_what_was_asked_and_who_decided(self, store: Store, limiter: Limiter) -> None:
        """The fields that repeat the question."""
        allowed = await limiter.try_acquire("k", 7)
        refused = await limiter.try_acquire("k", 4)
        assert allowed[:5] == (True, "k", 7, 7, 10)
        assert refused[:5] == (False, "k", 4, 0, 10)
        assert {allowed.source, refused.source} == {store.source}
        assert allowed.policy == refused.policy == limiter.policy

    async def test_takes_its_cost_from_what_remains(self, limiter: Limiter) -> None:
        """Remaining after an admission is remaining before, less the cost."""
        before = await remaining(limiter)
        for cost in (1, 4, 2):
            decision = await limiter.try_acquire("k", cost)
            assert decision.remaining == before - cost
            before = decision.remaining

    async def test_a_refusal_spends_nothing(self, store: Store, limiter: Limiter) -> None:
        """Too much is refused, what is left still goes, and the stored bytes stay the same meanwhile."""
        await limiter.try_acquire("k", 8)
        stored = store.contents()
        assert not await limiter.try_acquire("k", 5)
        assert store.contents() == stored
        assert (await limiter.try_acquire("k", 2)).remaining == 0

    async def test_keys_do_not_touch_each_other(self, limiter: Limiter) -> None:
        """One key's use is not another's."""
        await drain(limiter, "a")
        assert [await remaining(limiter, key) for key in ("a", "b", "A", "a ", "a:b", "{a}")] == [0, 10, 10, 10, 10, 10]

    async def test_text_and_its_utf8_bytes_are_one_key(self, limiter: Limiter) -> None:
        """For ASCII and beyond; the decision shows the key as it was given."""
        for text in ("user:42", "ключ-🔑"):
            await limiter.try_acquire(text, 4)
            decision = await limiter.try_acquire(text.encode(), 4)
            assert (decision.remaining, decision.key) == (2, text.encode())

    async def test_bytes_that_are_no_text_are_keys(self, limiter: Limiter) -> None:
        """Bytes that differ are keys that differ."""
        await limiter.try_acquire(b"\xff\x00", 4)
        assert [await remaining(limiter, key) for key in (b"\xff\x00", b"\xff\x01", "\xff\x00")] == [6, 10, 10]

    async def test_a_cost_above_the_limit_raises_and_writes_nothing(self, store: Store, limiter: Limiter) -> None:
        """It could never succeed, so there is no time to wait to tell."""
        for cost in (11, 100, 10**12):
            with pytest.raises(PolicyError, match=f"cost {cost} .* at most 10"):
                await limiter.try_acquire("k", cost)
        assert store.keys() == 0

    async def test_mixed_costs_fill_the_limit_exactly(self, limiter: Limiter) -> None:
        """Eight, one and one fit into ten; one more does not."""
        assert [bool(await limiter.try_acquire("k", cost)) for cost in (8, 1, 1, 1)] == [True, True, True, False]

    async def test_whoever_waits_as_told_is_admitted(self, store: Store, limiter: Limiter) -> None:
        """``retry_after`` suffices at the first try, for costs small and large, on the clock that decided."""
        await drain(limiter)
        for cost in (10, 1, 3, 10, 7):
            refused = await limiter.try_acquire("k", cost)
            if not refused:
                assert refused.retry_after
                store.advance(refused.retry_after)
                assert await limiter.try_acquire("k", cost), refused


class TestCostZero:
    async def test_looks_at_a_fresh_key_without_making_it(self, store: Store, limiter: Limiter) -> None:
        """Neither verb leaves a trace."""
        for decision in (await limiter.try_acquire("k", 0), await limiter.peek("k", 0)):
            assert (decision.allowed, decision.granted, decision.remaining) == (True, 0, 10)
            assert decision.reset_after == 0
        assert store.keys() == 0

    async def test_looks_at_a_used_key_without_spending(self, store: Store, limiter: Limiter) -> None:
        """What remains is told and stays."""
        await limiter.try_acquire("k", 3)
        stored = store.contents()
        assert [(await limiter.try_acquire("k", 0)).remaining for _ in range(3)] == [7, 7, 7]
        assert store.contents() == stored

    async def test_is_allowed_even_when_nothing_remains(self, limiter: Limiter) -> None:
        """Nothing asked for always fits; ``remaining`` tells the rest."""
        await drain(limiter)
        for decision in (await limiter.try_acquire("k", 0), await limiter.peek("k", 0)):
            assert (decision.allowed, decision.remaining, decision.retry_after) == (True, 0, 0.0)


class TestPeek:
    async def test_spends_and_makes_nothing(self, store: Store, limiter: Limiter) -> None:
        """A fresh key stays unknown, a used one as it is."""
        assert (await limiter.peek("k", 10)).allowed
        assert store.keys() == 0
        await limiter.try_acquire("k", 3)
        stored = store.contents()
        assert (await limiter.peek("k", 7)).allowed
        assert not (await limiter.peek("k", 8)).allowed
        assert store.contents() == stored

    async def test_agrees_with_the_answer_before_it(self, store: Store, limiter: Limiter) -> None:
        """Right after an admission and after a refusal it tells the same numbers; exactly so on a clock that stands."""
        tolerance = 0 if isinstance(store, MemoryStore) else 2.0
        for cost in (4, 7, 6, 1):
            decided, seen = await limiter.try_acquire("k", cost), await limiter.peek("k", cost)
            assert (seen.remaining, seen.granted) == (decided.remaining, 0)
            assert seen.reset_after == pytest.approx(decided.reset_after, abs=tolerance)
            if not decided:
                assert seen.retry_after == pytest.approx(decided.retry_after, abs=tolerance)

    async def test_foretells_what_try_acquire_decides(self, limiter: Limiter) -> None:
        """For costs that fit and costs that do not."""
        for cost in (4, 7, 6, 1, 0):
            foretold = (await limiter.peek("k", cost)).allowed
            assert (await limiter.try_acquire("k", cost)).allowed is foretold


class TestAcquireUpTo:
    async def test_charges_the_whole_units_that_fit(self, limiter: Limiter) -> None:
        """All, then some, then none; a refusal says when one unit fits."""
        decisions = [await limiter.acquire_up_to("k", 7) for _ in range(3)]
        assert [(d.granted, d.remaining, d.allowed) for d in decisions] == [(7, 3, True), (3, 0, True), (0, 0, False)]
        for decision in decisions:
            check(decision)

    async def test_may_ask_for_more_than_the_limit(self, limiter: Limiter) -> None:
        """Ten of five hundred fit, and the decision shows the cost as it was asked."""
        decision = await limiter.acquire_up_to("k", 500)
        assert (decision.granted, decision.cost, decision.remaining) == (10, 500, 0)

    async def test_of_nothing_charges_nothing(self, store: Store, limiter: Limiter) -> None:
        """Zero of zero is an answer, not a key."""
        decision = await limiter.acquire_up_to("k", 0)
        assert (decision.granted, decision.remaining, decision.allowed) == (0, 10, True)
        assert store.keys() == 0

    async def test_what_is_told_to_wait_suffices_for_a_unit(self, store: Store, limiter: Limiter) -> None:
        """And no fraction of a unit is ever granted."""
        await limiter.acquire_up_to("k", 10)
        refused = await limiter.acquire_up_to("k", 10)
        assert refused.retry_after
        store.advance(refused.retry_after)
        assert (await limiter.acquire_up_to("k", 10)).granted >= 1


class TestRefund:
    async def test_gives_units_back(self, limiter: Limiter) -> None:
        """What was charged and not used can be charged again."""
        await limiter.try_acquire("k", 8)
        decision = await limiter.refund("k", 7)
        assert (decision.allowed, decision.remaining, decision.cost, decision.granted) == (True, 9, 7, 0)
        assert [bool(await limiter.try_acquire("k", cost)) for cost in (9, 1)] == [True, False]

    async def test_never_makes_a_key_fresher_than_fresh(self, limiter: Limiter) -> None:
        """Too much given back is not more to spend."""
        await limiter.try_acquire("k", 8)
        for _ in range(3):
            decision = await limiter.refund("k", 1000)
            assert (decision.remaining, decision.reset_after) == (10, 0)
        assert [bool(await limiter.try_acquire("k", cost)) for cost in (10, 1)] == [True, False]

    async def test_makes_no_key(self, store: Store, limiter: Limiter) -> None:
        """There is nothing to give back to a key that is not there."""
        assert (await limiter.refund("k", 70)).remaining == 10
        assert store.keys() == 0

    async def test_pays_off_a_debt_first(self, limiter: Limiter) -> None:
        """Fifteen used of ten, six given back: nine in use."""
        await limiter.charge("k", 15)
        assert (await limiter.refund("k", 6)).remaining == 1

    async def test_of_nothing_changes_nothing(self, store: Store, limiter: Limiter) -> None:
        """Zero units given back."""
        await limiter.try_acquire("k", 3)
        stored = store.contents()
        assert (await limiter.refund("k", 0)).remaining == 7
        assert store.contents() == stored


class TestCharge:
    async def test_takes_what_fits_like_an_admission(self, limiter: Limiter) -> None:
        """Within the limit it is an admission."""
        decision = await limiter.charge("k", 4)
        check(decision)
        assert (decision.allowed, decision.granted, decision.remaining) == (True, 4, 6)

    async def test_puts_a_key_in_debt(self, limiter: Limiter) -> None:
        """It is never refused; what comes then is, and longer than without the debt."""
        await limiter.try_acquire("k", 8)
        without_debt = await limiter.peek("k", 3)
        decision = await limiter.charge("k", 7)
        check(decision)
        assert (decision.allowed, decision.granted, decision.remaining) == (True, 7, 0)
        refused = await limiter.try_acquire("k", 3)
        check(refused)
        assert refused.retry_after
        assert without_debt.retry_after
        if type(limiter.policy).__name__ != "FixedWindow":  # whose next window forgets all
            assert refused.retry_after >= without_debt.retry_after - 1

    async def test_a_debt_is_paid_off_by_time(self, store: Store, limiter: Limiter) -> None:
        """After the time that is told, the cost fits, and after the reset time the key is as new."""
        await limiter.charge("k", 25)
        refused = await limiter.try_acquire("k", 4)
        assert refused.retry_after
        store.advance(refused.retry_after)
        assert await limiter.try_acquire("k", 4)
        peeked = await limiter.peek("k")
        store.advance(peeked.reset_after)
        assert await remaining(limiter) == 10

    async def test_of_nothing_makes_no_key(self, store: Store, limiter: Limiter) -> None:
        """Zero units charged."""
        assert (await limiter.charge("k", 0)).remaining == 10
        assert store.keys() == 0


class TestReset:
    async def test_makes_the_key_fresh(self, store: Store, limiter: Limiter) -> None:
        """The answer says so, and nothing is kept."""
        await limiter.charge("k", 25)
        await limiter.try_acquire("other", 5)
        decision = await limiter.reset("k")
        check(decision)
        assert (decision.allowed, decision.remaining, decision.reset_after) == (True, 10, 0)
        assert [await remaining(limiter, key) for key in ("k", "other")] == [10, 5]
        assert store.keys() == 1

    async def test_of_an_unknown_key_is_an_answer_too(self, store: Store, limiter: Limiter) -> None:
        """There is nothing to forget."""
        assert (await limiter.reset("k")).remaining == 10
        assert store.keys() == 0

    async def test_the_key_can_be_used_again(self, limiter: Limiter) -> None:
        """As a fresh one, and reset again."""
        for _ in range(3):
            assert [bool(await limiter.try_acquire("k", cost)) for cost in (10, 1)] == [True, False]
            await limiter.reset("k")


class TestTryAcquireMany:
    async def test_answers_every_item_in_order(self, limiter: Limiter) -> None:
        """Keys alone cost one; pairs say their cost; the answers name their keys."""
        decisions = await limiter.try_acquire_many(["a", ("b", 3), b"c", ("d", 10), ("e", 0)])
        assert [(d.key, d.cost, d.granted, d.remaining) for d in decisions] == [
            ("a", 1, 1, 9),
            ("b", 3, 3, 7),
            (b"c", 1, 1, 9),
            ("d", 10, 10, 0),
            ("e", 0, 0, 10),
        ]

    async def test_a_key_that_stands_twice_sees_its_own_spend(self, limiter: Limiter) -> None:
        """Exactly the limit is admitted, and what does not fit takes nothing from what does."""
        decisions = await limiter.try_acquire_many([("a", 4), ("b", 9), ("a", 5), ("a", 2), b"b", "a", "a", "b"])
        assert [d.allowed for d in decisions] == [True, True, True, False, True, True, False, False]
        assert [d.remaining for d in decisions] == [6, 1, 1, 1, 0, 0, 0, 0]

    async def test_equals_the_same_questions_one_by_one(self, limiter: Limiter) -> None:
        """Each allowed, granted and remaining."""
        costs = [3, 5, 0, 4, 1, 2, 1, 1, 10]
        together = await limiter.try_acquire_many([("a", cost) for cost in costs])
        singly = [await limiter.try_acquire("b", cost) for cost in costs]
        assert [(d.allowed, d.granted, d.remaining) for d in together] == [
            (d.allowed, d.granted, d.remaining) for d in singly
        ]

    async def test_of_a_thousand_times_one_key_admits_the_limit(self, limiter: Limiter) -> None:
        """Though no time passes between them."""
        decisions = await limiter.try_acquire_many(["k"] * 1000)
        assert sum(d.allowed for d in decisions) == 10

    async def test_of_nothing_is_nothing(self, store: Store, limiter: Limiter) -> None:
        """No items, no answers, no keys."""
        assert await limiter.try_acquire_many([]) == []
        assert store.keys() == 0

    async def test_takes_any_iterable(self, limiter: Limiter) -> None:
        """A generator will do."""
        decisions = await limiter.try_acquire_many(str(number) for number in range(5))
        assert [d.key for d in decisions] == ["0", "1", "2", "3", "4"]

    async def test_checks_every_item_before_it_charges_any(self, store: Store, limiter: Limiter) -> None:
        """A mistake at the end costs nothing at the start."""
        for wrong in (("b", -5), ("b", 1.5), ("b", 11), "", None, 5, ("b", None)):
            with pytest.raises((TypeError, ValueError)):
                await limiter.try_acquire_many(["a", wrong])  # type: ignore[list-item]
        assert store.keys() == 0


class TestSeparation:
    async def test_limiters_of_one_name_and_policy_share_their_keys(self, limiter_of: LimiterOf, store: Store) -> None:
        """Two objects, one count."""
        await limiter_of("10/h log", "api").try_acquire("k", 4)
        assert await remaining(limiter_of("10/h log", "api")) == 6

    async def test_limiters_of_other_names_do_not(self, limiter_of: LimiterOf, store: Store) -> None:
        """Even where joining name and key with a colon would give the same text."""
        for name, key in (("x", "y:1"), ("x:y", "1"), ("x%3Ay", "1"), ("x:", "y:1")):
            assert (await limiter_of("10/h fixed", name).try_acquire(key, 10)).allowed

    async def test_kinds_of_policies_do_not(self, limiter_of: LimiterOf, store: Store) -> None:
        """One name, one key, four algorithms: four counts."""
        for text in ("10/h", "10/h fixed", "10/h sliding", "10/h log"):
            assert (await limiter_of(text).try_acquire("k", 10)).allowed
        assert store.keys() == 4


class TestChangedPolicy:
    """A limit that is changed while its keys are live takes effect at once, and the units in use carry over."""

    async def test_raised_limit_gives_the_difference(self, limiter: Limiter, limiter_of: LimiterOf) -> None:
        """Ten used of ten, fifty refused, then twenty: ten more."""
        decisions = [await limiter.try_acquire("k") for _ in range(50)]
        raised = limiter_of(type(limiter.policy)(20, HOUR))
        more = [await raised.try_acquire("k") for _ in range(20)]
        assert (sum(map(bool, decisions)), sum(map(bool, more))) == (10, 10)

    async def test_lowered_limit_refuses_until_units_are_free(
        self, store: Store, limiter: Limiter, limiter_of: LimiterOf
    ) -> None:
        """Eight used of four: refused, nothing remains, and after the time told one fits."""
        await limiter.try_acquire("k", 8)
        lowered = limiter_of(type(limiter.policy)(4, HOUR))
        refused = await lowered.try_acquire("k")
        assert (refused.allowed, refused.remaining, refused.limit) == (False, 0, 4)
        assert refused.retry_after
        store.advance(refused.retry_after)
        assert await lowered.try_acquire("k")

    async def test_lowered_and_raised_again_forgets_nothing(self, limiter: Limiter, limiter_of: LimiterOf) -> None:
        """Six used of ten are six used of ten, whoever looked, gave back or charged in between."""
        await limiter.try_acquire("k", 6)
        lowered = limiter_of(type(limiter.policy)(3, HOUR))
        assert not await lowered.try_acquire("k")
        assert await remaining(limiter) == 4
        await lowered.charge("k", 2)
        assert await remaining(limiter) == 2
        await lowered.refund("k", 1)
        assert await remaining(limiter) == 3

    async def test_debt_counts_under_a_raised_limit(self, limiter: Limiter, limiter_of: LimiterOf) -> None:
        """Fifteen used of twenty leave five."""
        await limiter.charge("k", 15)
        raised = limiter_of(type(limiter.policy)(20, HOUR))
        assert await remaining(raised) == 5
        assert [bool(await raised.try_acquire("k", cost)) for cost in (6, 5, 1)] == [False, True, False]

    async def test_other_window_keeps_the_units_in_use(self, limiter: Limiter, limiter_of: LimiterOf) -> None:
        """Seven used in the last second are seven used, whether the window becomes longer or shorter."""
        await limiter.try_acquire("k", 7)
        for window in (2 * HOUR, 60 * 60 * 24, HOUR / 2, HOUR):
            assert await remaining(limiter_of(type(limiter.policy)(10, window))) == 3
