"""The backend in memory: bounded, without tasks, shared by threads, on a clock that can be replaced."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiolimit import FixedWindow, Limiter, MemoryBackend, SlidingLog, SlidingWindow, TokenBucket
from aiolimit.policies import Policy

S = 1_000_000
POLICIES: list[Policy] = [TokenBucket(5, 60), FixedWindow(5, 60), SlidingWindow(5, 60), SlidingLog(5, 60)]
each_policy = pytest.mark.parametrize("policy", POLICIES, ids=str)


class Clock:
    """Microseconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.us = 1_800_000_000 * S

    def __call__(self) -> int:
        """The time."""
        return self.us

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.us += round(seconds * S)


@pytest.fixture
def clock() -> Clock:
    """A clock for one test."""
    return Clock()


class TestBounds:
    @each_policy
    async def test_keys_that_are_fresh_again_leave(self, policy: Policy, clock: Clock) -> None:
        """As other keys are asked for, a few at a time, until only those in use are left."""
        backend = MemoryBackend(clock=clock)
        limiter = Limiter(policy, backend)
        for number in range(1000):
            await limiter.try_acquire(f"old {number}")
        assert len(backend) == 1000
        clock.advance(121)
        for number in range(500):
            await limiter.try_acquire(f"new {number}")
        assert len(backend) == 500

    async def test_clearing_never_holds_a_decision_up(self, clock: Clock) -> None:
        """However many keys expired together, one decision drops a few."""
        backend = MemoryBackend(clock=clock)
        limiter = Limiter("5/m fixed", backend)
        for number in range(1000):
            await limiter.try_acquire(f"old {number}")
        clock.advance(60)
        await limiter.peek("x")
        assert 990 <= len(backend) < 1000

    @each_policy
    async def test_a_key_in_use_stays(self, policy: Policy, clock: Clock) -> None:
        """Used again and again, it is never taken for fresh: it gets its limit and no more."""
        limiter = Limiter(policy, MemoryBackend(clock=clock))
        admitted = 0
        for step in range(600):
            clock.advance(1)
            admitted += bool(await limiter.try_acquire("k"))
            await limiter.try_acquire(f"other {step}")
        most = 5 + 5 * 600 / 60
        assert admitted <= most

    @each_policy
    async def test_never_keeps_more_than_it_may(self, policy: Policy, clock: Clock) -> None:
        """New keys are admitted, and the ones nearest to fresh leave for them."""
        backend = MemoryBackend(clock=clock, max_keys=50)
        limiter = Limiter(policy, backend)
        for number in range(1000):
            clock.advance(0.001)
            assert await limiter.try_acquire(f"k{number}")
            assert len(backend) <= 50
        assert backend.max_keys == 50

    @each_policy
    async def test_a_flood_frees_no_client_that_is_refused(self, policy: Policy, clock: Clock) -> None:
        """Those that have used up their limit stay refused; the new ones are refused in their place, until there is
        room.
        """
        backend = MemoryBackend(clock=clock, max_keys=20)
        limiter = Limiter(policy, backend)
        for number in range(20):
            await limiter.try_acquire(f"used up {number}", 5)
        for number in range(500):
            refused = await limiter.try_acquire(f"new {number}")
            assert not refused
            assert refused.retry_after
        for number in range(20):
            assert not await limiter.try_acquire(f"used up {number}")
        assert len(backend) == 20
        clock.advance(121)
        assert await limiter.try_acquire("new")

    async def test_whoever_is_refused_for_lack_of_room_is_told_how_long(self, clock: Clock) -> None:
        """The wait suffices where the one key is fresh then."""
        limiter = Limiter("1/m fixed", MemoryBackend(clock=clock, max_keys=1))
        assert await limiter.try_acquire("a")
        refused = await limiter.try_acquire("b")
        assert not refused
        assert refused.retry_after
        clock.advance(refused.retry_after)
        assert await limiter.try_acquire("b")

    async def test_says_once_that_it_is_full(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        """With the remedy."""
        limiter = Limiter("5/m", MemoryBackend(clock=clock, max_keys=2))
        with caplog.at_level(logging.WARNING, logger="aiolimit"):
            for number in range(100):
                await limiter.try_acquire(f"k{number}")
        assert [record.getMessage() for record in caplog.records] == [
            "the memory backend is full: 2 keys; raise max_keys, or limit fewer identities"
        ]

    @each_policy
    async def test_asking_in_vain_takes_no_room(self, policy: Policy, clock: Clock) -> None:
        """Peeks, refunds and resets of unknown keys make none."""
        backend = MemoryBackend(clock=clock)
        limiter = Limiter(policy, backend)
        for number in range(100):
            await limiter.peek(f"k{number}")
            await limiter.refund(f"k{number}", 3)
            await limiter.reset(f"k{number}")
            await limiter.try_acquire(f"k{number}", 0)
        assert len(backend) == 0

    async def test_a_sliding_log_holds_no_more_than_its_limit(self, clock: Clock) -> None:
        """However much is charged and refused."""
        backend = MemoryBackend(clock=clock)
        limiter = Limiter("5/m log", backend)
        for _ in range(100):
            await limiter.charge("k", 10**9)
            await limiter.try_acquire("k")
        (space,) = backend._spaces.values()
        assert len(space.states["k"].times) == 5


class TestThreads:
    @pytest.fixture
    def switching(self) -> Iterator[None]:
        """Threads that take turns as often as they can."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(interval)

    @pytest.mark.parametrize(
        "policy",
        [TokenBucket(100, 3600), FixedWindow(100, 86_400), SlidingWindow(100, 3600), SlidingLog(100, 3600)],
        ids=str,
    )
    def test_eight_admit_exactly_the_limit(self, policy: Policy, clock: Clock, switching: None) -> None:
        """Each with a loop of its own, on one limiter and one key."""
        limiter = Limiter(policy, MemoryBackend(clock=clock))
        admitted: list[int] = []
        start = threading.Barrier(8)

        async def hammer() -> int:
            return sum([bool(await limiter.try_acquire("k")) for _ in range(200)])

        def run() -> None:
            start.wait()
            admitted.append(asyncio.run(hammer()))

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(admitted) == 8
        assert sum(admitted) == 100

    def test_many_keys_stay_bounded(self, clock: Clock, switching: None) -> None:
        """Keys that come and leave from all sides at once."""
        backend = MemoryBackend(clock=clock, max_keys=50)
        limiter = Limiter("5/m", backend)
        errors: list[BaseException] = []

        async def visit(thread: int) -> None:
            for number in range(300):
                await limiter.try_acquire(f"{thread} {number}")
                await limiter.reset(f"{(thread + 1) % 4} {number}")
                clock.advance(0.01)

        def run(thread: int) -> None:
            try:
                asyncio.run(visit(thread))
            except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(backend) <= 50


class TestClock:
    async def test_runs_no_task_timer_or_thread(self) -> None:
        """Deciding is all that happens, and it never even yields to the loop."""
        loop = asyncio.get_running_loop()
        tasks, threads = asyncio.all_tasks(), threading.active_count()
        limiter = Limiter("5/s")
        for number in range(100):
            await limiter.try_acquire(f"k{number}")
        assert asyncio.all_tasks() == tasks
        assert threading.active_count() == threads
        timers: Any = getattr(loop, "_scheduled", [])
        assert timers == []
        with pytest.raises(StopIteration):
            limiter.try_acquire("k").send(None)

    async def test_the_wall_clock_may_be_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What decides starts at it and then only goes forward."""
        limiter = Limiter("5/h fixed")
        await limiter.try_acquire("k", 5)
        before = (await limiter.peek("k")).reset_after
        true_ns = time.time_ns
        for step in (-3600 * 10**9, 7200 * 10**9):
            monkeypatch.setattr(time, "time_ns", lambda step=step: true_ns() + step)
            assert (await limiter.peek("k")).reset_after == pytest.approx(before, abs=5)
            assert (await limiter.peek("k")).remaining == 0

    async def test_windows_start_where_the_wall_clocks_do(self) -> None:
        """The default clock counts from 1970."""
        reset_after = (await Limiter("5/h fixed").try_acquire("k")).reset_after
        assert 0 <= (reset_after + time.time()) % 3600 < 5 or (reset_after + time.time()) % 3600 > 3595

    async def test_a_clock_that_steps_back_keeps_the_bounds(self, clock: Clock) -> None:
        """Keys of the future are found and leave."""
        backend = MemoryBackend(clock=clock, max_keys=50)
        limiter = Limiter("5/m", backend)
        for number in range(100):
            await limiter.try_acquire(f"k{number}")
            clock.advance(-60)
        assert len(backend) <= 50
        clock.advance(6000 + 121)
        for number in range(100):
            await limiter.peek(f"x{number}")
        assert len(backend) == 0


class TestSharing:
    async def test_each_limiter_without_a_backend_has_its_own(self) -> None:
        """Even under one name."""
        one, other = Limiter("5/h"), Limiter("5/h")
        await one.try_acquire("k", 5)
        assert await other.try_acquire("k", 5)

    async def test_limiters_of_one_backend_and_name_share(self, clock: Clock) -> None:
        """Where they are of one kind."""
        backend = MemoryBackend(clock=clock)
        await Limiter("5/h", backend).try_acquire("k", 3)
        assert (await Limiter("5/h", backend).peek("k")).remaining == 2
        assert (await Limiter("5/h", backend, name="x").peek("k")).remaining == 5
        assert (await Limiter("5/h log", backend).peek("k")).remaining == 5

    async def test_a_group_changes_nothing_in_memory(self, clock: Clock) -> None:
        """All keys lie in one place already."""
        limiter = Limiter("5/h", MemoryBackend(clock=clock), group=lambda _: "all")
        await limiter.try_acquire("a", 5)
        assert await limiter.try_acquire("b", 5)

    async def test_closing_forgets(self, clock: Clock) -> None:
        """And it can be used again."""
        async with MemoryBackend(clock=clock) as backend:
            limiter = Limiter("5/h", backend)
            await limiter.try_acquire("k", 5)
        assert len(backend) == 0
        assert await limiter.try_acquire("k", 5)

    def test_its_repr_tells_how_many_keys(self, clock: Clock) -> None:
        """To look at."""
        assert repr(MemoryBackend(clock=clock)) == "<MemoryBackend keys=0>"


@pytest.mark.parametrize("max_keys", [0, -1, True, 1.5, "10", None])
def test_max_keys_is_a_whole_number(max_keys: Any) -> None:
    """One or more."""
    with pytest.raises(ValueError, match=f"max_keys must be a whole number, 1 or more, not {max_keys!r}"):
        MemoryBackend(max_keys=max_keys)


@pytest.mark.parametrize("clock", [5, "now", 1.5])
def test_a_clock_is_a_callable(clock: Any) -> None:
    """That gives microseconds."""
    with pytest.raises(TypeError, match=f"clock must be a callable that gives integer microseconds, not {clock!r}"):
        MemoryBackend(clock=clock)
