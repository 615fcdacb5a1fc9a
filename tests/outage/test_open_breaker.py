"""While the breaker is open: nothing goes out, nothing grows, and exactly one caller finds out whether it is over."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from aiolimit import CircuitBreaker, Decision, Limiter, RedisBackend
from aiolimit.events import BreakerMoved

from ..integration.conftest import BackendOf
from ..support.proxy import FaultProxy
from ..support.servers import HOST, Server, free_port
from .faults import DEADLINE, SLACK, SOURCES, Failure, Peer, charged, fault, quiet, recovered, state_of, until

pytestmark = pytest.mark.parametrize("server_kind", ["redis"], indirect=True)


def tripped(open_for: float, **options: Any) -> CircuitBreaker:
    """One that opens at the first failure."""
    return CircuitBreaker(failures=1, open_for=open_for, max_open_for=open_for, jitter=lambda: 0.0, **options)


def trip(backend: RedisBackend) -> None:
    """Open it as a failure does."""
    breaker = backend.breaker
    breaker.failed(breaker.generation, time.monotonic())
    assert breaker.state == "open"


async def time_is_over(breaker: CircuitBreaker) -> None:
    """Wait until the next one who asks is the probe."""
    await asyncio.sleep(max(breaker.retry_in(time.monotonic()), 0) + 0.005)


@pytest.mark.parametrize("failure", ["open", "closed", "local"])
async def test_no_packet_leaves(failure: Failure, wire: FaultProxy, backend_of: BackendOf) -> None:
    """Neither for a lone caller nor for a thousand nor for batches; each decision is counted as not asked."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=tripped(60), listeners=[])
    limiter = Limiter("100000/h", backend, failure=failure)
    await recovered(limiter)
    wire.silent(True)
    wire.cut()
    await limiter.try_acquire("k")
    await until(lambda: backend.breaker.state == "open")
    await quiet(backend, wire)
    before = (wire.to_server.bytes, wire.to_server.chunks, wire.accepted, backend.stats.calls)
    not_asked = backend.stats.not_asked
    decisions = [await limiter.try_acquire("k") for _ in range(100)]
    decisions += await asyncio.gather(*(limiter.try_acquire("k") for _ in range(1_000)))
    for _ in range(10):
        decisions += await limiter.try_acquire_many(["k"] * 500)
    decisions += [await limiter.peek("k"), await limiter.charge("k"), await limiter.refund("k")]
    await asyncio.sleep(0.1)
    assert {decision.source for decision in decisions} == {SOURCES[failure]}
    assert (wire.to_server.bytes, wire.to_server.chunks, wire.accepted, backend.stats.calls) == before
    assert backend.stats.not_asked - not_asked == 100 + 1_000 + 10 + 3


@pytest.mark.parametrize("failure", ["open", "closed"])
async def test_a_decision_takes_microseconds(failure: Failure, server: Server, backend_of: BackendOf) -> None:
    """A fifth of a millisecond at most, on whatever machine this is."""
    backend = backend_of(server.url(), listeners=[])
    limiter = Limiter("100/h", backend, failure=failure)
    backend.breaker.force_open()
    start = time.process_time()
    for _ in range(5_000):
        await limiter.try_acquire("k")
    assert (time.process_time() - start) / 5_000 < 200e-6


class TestProbe:
    async def test_is_one_of_a_thousand_callers(self, server: Server, backend_of: BackendOf) -> None:
        """Those who come at the instant when the open time ends; after it the server decides for all."""
        backend = backend_of(server.url(), breaker=tripped(0.1), listeners=[])
        limiter = Limiter("100000/h", backend)
        await recovered(limiter)
        trip(backend)
        server.reset_stats()
        await time_is_over(backend.breaker)
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(1_000)))
        assert Counter(decision.source for decision in decisions) == {"redis": 1, "fail_open": 999}
        assert server.commandstats()["evalsha"] == 1
        assert await charged(limiter, ["k"]) == [1]
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(1_000)))
        assert Counter(decision.source for decision in decisions) == {"redis": 1_000}

    async def test_may_be_a_batch(self, server: Server, backend_of: BackendOf) -> None:
        """Five hundred at once, and nobody else."""
        backend = backend_of(server.url(), breaker=tripped(0.1), listeners=[])
        limiter = Limiter("100000/h", backend)
        await recovered(limiter)
        trip(backend)
        await time_is_over(backend.breaker)
        batches = await asyncio.gather(*(limiter.try_acquire_many(["k"] * 500) for _ in range(10)))
        assert Counter(one.source for batch in batches for one in batch) == {"redis": 500, "fail_open": 4_500}
        assert backend.breaker.state == "closed"

    async def test_in_vain_opens_it_again(self, wire: FaultProxy, backend_of: BackendOf) -> None:
        """Of a thousand callers one waited for the deadline, and nobody else."""
        backend = backend_of(wire.url(), deadline=DEADLINE, breaker=tripped(0.1), listeners=[])
        limiter = Limiter("100000/h", backend)
        await recovered(limiter)
        trip(backend)
        wire.stall()
        await time_is_over(backend.breaker)
        took: list[float] = []

        async def caller() -> None:
            start = time.monotonic()
            assert (await limiter.try_acquire("k")).source == "fail_open"
            took.append(time.monotonic() - start)

        await asyncio.gather(*(caller() for _ in range(1_000)))
        assert sum(seconds > DEADLINE * 0.9 for seconds in took) == 1
        await until(lambda: backend.breaker.state == "open")
        wire.resume()
        await recovered(limiter)

    @pytest.mark.parametrize("when", ["before it is sent", "on its way"])
    @pytest.mark.parametrize("how", ["cancelled", "died"])
    async def test_lost_with_its_caller_is_replaced_by_one(
        self, when: str, how: str, server: Server, wire: FaultProxy, backend_of: BackendOf
    ) -> None:
        """The breaker does not stay half-open, and never are two on their way."""
        backend = backend_of(wire.url(), deadline=0.3, breaker=tripped(0.1), listeners=[])
        limiter = Limiter("100000/h", backend)
        await recovered(limiter)
        trip(backend)
        wire.stall()
        server.reset_stats()
        calls = backend.stats.calls
        await time_is_over(backend.breaker)
        probe = limiter.try_acquire("probe")
        task: asyncio.Task[Decision] | None = None
        if how == "cancelled":
            task = asyncio.create_task(probe)
            await asyncio.sleep(0)
        else:
            probe.send(None)
        assert backend.breaker.state == "half_open"
        if when == "on its way":
            await until(lambda: backend.stats.calls > calls)
        if task is not None:
            task.cancel()
        else:
            probe.close()
        decisions = await asyncio.gather(*(limiter.try_acquire("k") for _ in range(1_000)))
        assert {decision.source for decision in decisions} == {"fail_open"}
        wire.resume()
        async with asyncio.timeout(5):
            while state_of(backend) != "closed":
                sources = [one.source for one in await asyncio.gather(*(limiter.try_acquire("k") for _ in range(100)))]
                assert sources.count("redis") <= 1 or state_of(backend) == "closed"
                await asyncio.sleep(0.005)
        (used,) = await charged(limiter, ["probe"])
        assert used <= 1
        assert not (used and how == "cancelled" and when == "before it is sent")

    async def test_slower_than_the_open_time_still_closes_it(self, wire: FaultProxy, backend_of: BackendOf) -> None:
        """A probe counts as lost after a call's deadline at the earliest."""
        backend = backend_of(wire.url(), deadline=2.0, breaker=tripped(0.05), listeners=[])
        limiter = Limiter("100000/h", backend, failure="closed")
        await recovered(limiter)
        trip(backend)
        wire.latency = 0.2
        calls = backend.stats.calls
        callers = []
        async with asyncio.timeout(5):
            while backend.breaker.state != "closed":
                callers.append(asyncio.create_task(limiter.try_acquire("k")))
                await asyncio.sleep(0.005)
        assert backend.stats.calls - calls <= 2  # the probe, and what came with its answer
        await asyncio.gather(*callers)

    async def test_after_several_loops_is_still_one(self, server: Server, backend_of: BackendOf) -> None:
        """Threads with loops of their own share the breaker."""
        backend = backend_of(server.url(), breaker=tripped(0.2), listeners=[])
        limiter = Limiter("100000/h", backend)
        await recovered(limiter)
        trip(backend)
        server.reset_stats()
        await time_is_over(backend.breaker)
        at = time.monotonic() + 0.05

        async def ask() -> list[str]:
            await asyncio.sleep(max(at - time.monotonic(), 0))
            first = [limiter.try_acquire("k") for _ in range(50)]
            decisions = await asyncio.gather(*first)
            await backend.aclose()
            return [decision.source for decision in decisions]

        found = await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask()) for _ in range(4)))
        # Who comes after the probe's answer is decided by the server, too; but nobody beside it.
        assert backend.breaker.state == "closed"
        assert sum(sources.count("redis") for sources in found) in {1, 51, 101, 151}


async def test_up_and_down_gives_few_transitions(wire: FaultProxy, peer: Peer, server: Server) -> None:
    """A server that comes and goes every half second moves the breaker as often as it may probe, and no more."""
    moves: list[BreakerMoved] = []
    open_for = 0.2
    backend = RedisBackend.from_url(
        wire.url(),
        deadline=DEADLINE,
        breaker=CircuitBreaker(open_for=open_for, max_open_for=open_for),
        listeners=[lambda event: moves.append(event) if isinstance(event, BreakerMoved) else None],
    )
    async with backend:
        limiter = Limiter("1000000/h", backend)
        await recovered(limiter)
        start = time.monotonic()
        ends = False

        async def caller() -> None:
            while not ends:
                await limiter.try_acquire("k")
                await asyncio.sleep(0.002)

        callers = [asyncio.create_task(caller()) for _ in range(20)]
        for _ in range(4):
            async with fault("closes on the question", server, wire, peer):
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.5)
        elapsed = time.monotonic() - start
        ends = True
        await asyncio.gather(*callers)
        assert len(moves) >= 8
        assert len(moves) <= 4 * 2 + 2 * (elapsed / open_for + 1)
        await recovered(limiter)
        assert backend.breaker.state == "closed"


@pytest.mark.parametrize("failure", ["open", "local"])
async def test_nothing_grows_in_an_outage(failure: Failure, wire: FaultProxy, backend_of: BackendOf) -> None:
    """A thousand callers a second for three seconds, probes among them: no memory, no tasks, no connections."""
    breaker = CircuitBreaker(open_for=0.05, max_open_for=0.05)
    backend = backend_of(wire.url(), deadline=0.03, breaker=breaker)
    limiter = Limiter("1000000/h", backend, failure=failure)
    await recovered(limiter)
    wire.silent(True)
    wire.cut()

    async def outage(seconds: float) -> int:
        end = time.monotonic() + seconds
        asked = 0
        while time.monotonic() < end:
            await asyncio.gather(*(limiter.try_acquire(f"k{number}") for number in range(20)))
            asked += 20
            await asyncio.sleep(0.015)
        return asked

    tracemalloc.start()
    try:
        await outage(1.0)
        gc.collect()
        before, tasks = tracemalloc.get_traced_memory()[0], len(asyncio.all_tasks())
        asked = await outage(2.0)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert asked > 400
    assert backend.stats.failures > 10
    assert grown < 100_000
    assert len(asyncio.all_tasks()) <= tasks + 1
    await until(lambda: wire.open <= 3)


async def test_every_caller_of_an_outage_hears_from_it_alone(server_kind: str, backend_of: BackendOf) -> None:
    """The breaker of one backend says nothing about another."""
    dead = backend_of(f"redis://{HOST}:{free_port()}", breaker=tripped(60), listeners=[])
    other = backend_of(f"redis://{HOST}:{free_port()}", breaker=dead.breaker.copy(), listeners=[])
    await Limiter("10/h", dead).try_acquire("k")
    assert dead.breaker.state == "open"
    assert other.breaker.state == "closed"


async def test_recovery_comes_with_the_next_probe(wire: FaultProxy, backend_of: BackendOf) -> None:
    """Though nobody asked for a while."""
    backend = backend_of(wire.url(), deadline=DEADLINE, breaker=tripped(0.2), listeners=[])
    limiter = Limiter("100000/h", backend)
    await recovered(limiter)
    wire.stall()
    await limiter.try_acquire("k")
    await until(lambda: backend.breaker.state == "open")
    wire.resume()
    assert await recovered(limiter) < 0.2 + SLACK
