"""What `aiolimit.testing` gives to the tests of applications. The fault proxy's own tests are in `test_support`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiolimit import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Limiter,
    MemoryBackend,
    RateLimitExceeded,
    RedisBackend,
    TokenBucket,
)
from aiolimit.testing import FakeClock, FaultProxy, FaultyBackend, allow_all, deny_all

from ..support.servers import HOST


class TestFakeClock:
    def test_stands_still_until_told(self) -> None:
        """In whole microseconds, from where it was set."""
        clock = FakeClock(1_700_000_000.25)
        assert clock() == clock() == 1_700_000_000_250_000
        clock.advance(0.000_001)
        assert clock() == 1_700_000_000_250_001
        clock.advance(-1)
        assert clock() == 1_699_999_999_250_001

    async def test_moves_a_limiter(self) -> None:
        """Without waiting."""
        clock = FakeClock()
        limiter = Limiter(TokenBucket(rate=1, per=60), MemoryBackend(clock=clock))
        assert await limiter.try_acquire("k")
        refused = await limiter.try_acquire("k")
        assert refused.retry_after == 60
        clock.advance(59.999)
        assert not await limiter.try_acquire("k")
        clock.advance(0.001)
        assert await limiter.try_acquire("k")


class TestFaultyBackend:
    async def test_decides_as_the_one_within(self) -> None:
        """Its source, its counts, its verbs."""
        inner = MemoryBackend()
        backend = FaultyBackend(inner)
        limiter = Limiter("10/h", backend)
        assert (await limiter.try_acquire("k", 4)).source == "memory"
        assert (await Limiter("10/h", inner).peek("k")).remaining == 6
        assert [one.remaining for one in await limiter.try_acquire_many(["k", "k"])] == [5, 4]
        assert backend.asked == 3

    async def test_fails_until_it_recovers(self) -> None:
        """With an outage, or with the error that it is given."""
        backend = FaultyBackend()
        limiter = Limiter("10/h", backend, failure="closed")
        backend.fail()
        assert (await limiter.try_acquire("k")).source == "fail_closed"
        backend.fail(BackendError("a right is missing"))
        with pytest.raises(BackendError, match="a right is missing"):
            await limiter.try_acquire("k")
        backend.recover()
        assert (await limiter.try_acquire("k")).remaining == 9
        assert backend.asked == 3
        assert backend.decided_without == {"fail_closed": 1}

    async def test_a_delay_beyond_the_deadline_is_an_outage(self) -> None:
        """That of the backend, or of the call; within it the answer comes late."""
        backend = FaultyBackend(deadline=5)
        limiter = Limiter("10/h", backend)
        backend.delay = 0.05
        start = time.monotonic()
        assert (await limiter.try_acquire("k")).source == "memory"
        assert time.monotonic() - start >= 0.049
        assert (await limiter.try_acquire("k", deadline=0.01)).source == "fail_open"
        backend.deadline = 0.01
        assert (await limiter.try_acquire("k")).source == "fail_open"
        assert {one.source for one in await limiter.try_acquire_many(["k", "l"])} == {"fail_open"}
        backend.recover()
        assert (await limiter.peek("k")).remaining == 9  # what timed out was not charged

    async def test_an_error_may_be_of_any_kind(self) -> None:
        """Those of an outage all go to the failure policy."""
        backend = FaultyBackend()
        for error in (BackendUnavailable("gone"), BackendTimeout("late")):
            backend.fail(error)
            assert (await Limiter("10/h", backend).try_acquire("k")).source == "fail_open"

    async def test_closes_the_one_within(self) -> None:
        """As a context manager, too."""
        inner = MemoryBackend()
        async with FaultyBackend(inner) as backend:
            await Limiter("10/h", backend).try_acquire("k")
            assert len(inner) == 1
        assert len(inner) == 0


def every_verb(limiter: Limiter) -> dict[str, Any]:
    """A call of each that gives one decision."""
    return {
        "try_acquire": limiter.try_acquire("k", 3),
        "peek": limiter.peek("k", 3),
        "acquire_up_to": limiter.acquire_up_to("k", 3),
        "charge": limiter.charge("k", 3),
        "refund": limiter.refund("k", 3),
        "reset": limiter.reset("k"),
    }


class TestSwitch:
    async def test_allows_everything(self) -> None:
        """Also what is used up, by every verb, and charges nothing."""
        backend = FaultyBackend()
        limiter = Limiter("10/h", backend)
        await limiter.try_acquire("k", 10)
        asked = backend.asked
        with allow_all():
            for call in every_verb(limiter).values():
                decision = await call
                assert (decision.allowed, decision.source, decision.retry_after) == (True, "disabled", 0.0)
            assert all(await limiter.try_acquire_many(["k", ("k", 5)]))
            assert await limiter.acquire("k")
            async with limiter.acquire("k", timeout=0) as decision:
                assert decision.granted == 1
        assert backend.asked == asked
        assert not await limiter.try_acquire("k")

    async def test_denies_everything(self) -> None:
        """Also what is fresh, by every verb, without asking."""
        backend = FaultyBackend()
        limiter = Limiter("10/h", backend)
        with deny_all():
            for call in every_verb(limiter).values():
                decision = await call
                assert (decision.allowed, decision.source, decision.granted) == (False, "disabled", 0)
                assert decision.retry_after
            assert not any(await limiter.try_acquire_many(["k", "l"]))
            with pytest.raises(RateLimitExceeded):
                await limiter.acquire("k", timeout=0)
        assert backend.asked == 0
        assert (await limiter.try_acquire("k")).remaining == 9

    async def test_needs_no_server(self) -> None:
        """No connection is tried, whatever the backend."""
        backend = RedisBackend.from_url(f"redis://{HOST}:1")
        with deny_all():
            assert (await Limiter("10/h", backend, failure="open").try_acquire("k")).source == "disabled"
        assert backend.stats.connections == backend.stats.failures == 0

    async def test_reaches_limiters_made_before_and_within(self) -> None:
        """And in other tasks."""
        before = Limiter("10/h")
        with deny_all():
            within = Limiter("10/h")
            assert not await asyncio.ensure_future(before.try_acquire("k"))
            assert not await within.try_acquire("k")
        assert await before.try_acquire("k")
        assert await within.try_acquire("k")

    async def test_can_be_turned_within_another(self) -> None:
        """The inner one holds, and then the outer one again."""
        limiter = Limiter("10/h")
        with deny_all():
            with allow_all():
                assert await limiter.try_acquire("k")
            assert not await limiter.try_acquire("k")
        assert (await limiter.try_acquire("k")).source == "memory"

    async def test_is_turned_back_by_an_error(self) -> None:
        """A test that fails leaves nothing behind for the next."""

        def failing_test() -> None:
            with deny_all():
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing_test()
        assert await Limiter("10/h").try_acquire("k")

    async def test_hides_no_mistake(self) -> None:
        """A key that is none, and a cost that can never be, are errors as always."""
        limiter = Limiter("10/h")
        with allow_all():
            with pytest.raises(ValueError, match="key is empty"):
                await limiter.try_acquire("")
            with pytest.raises(ValueError, match="can never be admitted"):
                await limiter.try_acquire("k", 11)
            with pytest.raises(ValueError, match="key is empty"):
                await limiter.try_acquire_many(["k", ""])
            with pytest.raises(ValueError, match="'opne'"):
                await limiter.try_acquire("k", failure="opne")  # type: ignore[arg-type]  # that is the point


async def test_the_proxy_is_the_one_of_these_tests() -> None:
    """Users have it from the package."""
    proxy = await asyncio.to_thread(FaultProxy(1).start)
    assert proxy.url(3) == f"redis://{HOST}:{proxy.port}/3"
    await asyncio.to_thread(proxy.stop)
