"""White-box: the queue of one event loop, with lanes that take nothing by themselves."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from typing import Any, cast

import pytest

from aiolimit import BackendError, BackendOverloaded, BackendTimeout, BackendUnavailable, CircuitBreaker
from aiolimit.backends.batch import Batch, kind
from aiolimit.backends.batching import MAX_KEYS_PER_CALL as MOST
from aiolimit.backends.batching import Hub
from aiolimit.backends.lane import Lane
from aiolimit.backends.stats import Stats
from aiolimit.scripts import load

BUCKET = kind(load("token_bucket"), (b"0", b"1"))
WINDOW = kind(load("fixed_window"), (b"0", b"1"))
LONG = 20.0


class IdleLane:
    """Says that it will serve the queue, and leaves that to the test."""

    ended = is_opening = is_connected = False

    def __init__(self) -> None:
        self.woken = self.dropped = 0

    def wake(self) -> bool:
        """Count it."""
        self.woken += 1
        return True

    def drop(self) -> None:
        """Count it."""
        self.dropped += 1

    async def aclose(self) -> None:
        """Nothing to close."""


def hub_of(*, deadline: float = LONG, backlog: int = 10_000) -> tuple[Hub, IdleLane]:
    """A hub with one such lane."""
    lane = IdleLane()
    hub = Hub(
        asyncio.get_running_loop(),
        lambda _: cast("Lane", lane),
        breaker=CircuitBreaker(),
        tell=lambda _: None,
        server="test",
        stats=Stats(),
        lanes=1,
        deadline=deadline,
        backlog=backlog,
    )
    return hub, lane


def reply_to(batch: Batch) -> list[int]:
    """Answers that tell the keys apart: each grants its cost and remains at the number of its key."""
    return [word for key, cost in zip(batch.keys, batch.costs, strict=True) for word in (cost, int(key), 0, 0)]


async def turn() -> None:
    """Let what was scheduled run."""
    await asyncio.sleep(0)


async def until_done(*futures: asyncio.Future[Any]) -> None:
    """Wait until all have come to an end, whichever."""
    async with asyncio.timeout(LONG):
        await asyncio.wait(futures)


class TestSharing:
    async def test_who_asks_in_one_turn_shares_a_call(self) -> None:
        """One kind of question, one call, in the order of asking."""
        hub, _ = hub_of()
        futures = [hub.ask(BUCKET, b"%d" % number, number) for number in range(3)]
        (batch,) = hub.take()
        assert (batch.keys, batch.costs) == ([b"0", b"1", b"2"], [0, 1, 2])
        batch.settle(reply_to(batch))
        assert [await future for future in futures] == [(number, number, 0, 0) for number in range(3)]

    async def test_questions_of_two_kinds_take_two_calls(self) -> None:
        """Which still go together."""
        hub, _ = hub_of()
        for number in range(4):
            hub.ask(BUCKET if number % 2 else WINDOW, b"%d" % number, 1)
        assert [batch.keys for batch in hub.take()] == [[b"0", b"2"], [b"1", b"3"]]

    async def test_equal_policies_are_one_kind(self) -> None:
        """So that two limiters with the same numbers share their calls."""
        assert kind(load("token_bucket"), (b"0", b"1")) is BUCKET

    async def test_waking_takes_no_timer(self) -> None:
        """The lane is woken in the next turn of the loop, once for all who asked."""
        hub, lane = hub_of()
        hub.wake_lane()
        for number in range(3):
            hub.ask(BUCKET, b"%d" % number, 1)
        await turn()
        assert lane.woken <= 1
        assert hub.has_work

    @pytest.mark.parametrize(
        ("asked", "sizes"),
        [(MOST - 1, [MOST - 1]), (MOST, [MOST]), (MOST + 1, [MOST, 1]), (2 * MOST + 9, [MOST, MOST, 9])],
    )
    async def test_a_call_has_at_most_so_many_keys(self, asked: int, sizes: list[int]) -> None:
        """One question more starts another call; alone and by hand."""
        hub, _ = hub_of()
        futures = [hub.ask(BUCKET, b"%d" % number, 1) for number in range(asked)]
        wholes = hub.ask_many(BUCKET, [b"%d" % number for number in range(asked)], [1] * asked)
        taken: list[Batch] = []
        while hub.has_work:
            together = hub.take()
            assert sum(len(batch.keys) for batch in together) <= MOST
            taken += together
        assert sorted(len(batch.keys) for batch in taken) == sorted(2 * sizes)
        for batch in taken:
            batch.settle(reply_to(batch))
        assert [(await future)[1] for future in futures] == list(range(asked))
        assert [answer[1] for whole in wholes for answer in await whole] == list(range(asked))

    async def test_small_calls_go_together_up_to_the_cap(self) -> None:
        """The next one waits for the next write."""
        hub, _ = hub_of()
        for _ in range(3):
            hub.ask_many(BUCKET, [b"1"] * (2 * MOST // 5), [1] * (2 * MOST // 5))
        assert [len(hub.take()), len(hub.take())] == [2, 1]


class TestCancelled:
    async def test_a_question_that_nobody_awaits_is_left_out(self) -> None:
        """The answers of the others still find their callers."""
        hub, _ = hub_of()
        futures = [hub.ask(BUCKET, b"%d" % number, number) for number in range(5)]
        futures[0].cancel()
        futures[3].cancel()
        (batch,) = hub.take()
        assert (batch.keys, batch.costs) == ([b"1", b"2", b"4"], [1, 2, 4])
        batch.settle(reply_to(batch))
        assert [(await futures[number])[1] for number in (1, 2, 4)] == [1, 2, 4]

    async def test_a_call_that_nobody_awaits_is_not_made(self) -> None:
        """Neither of many callers nor of one."""
        hub, _ = hub_of()
        hub.ask(BUCKET, b"1", 1).cancel()
        hub.ask_many(BUCKET, [b"1", b"2"], [1, 1])[0].cancel()
        assert hub.take() == []
        assert not hub.has_work

    async def test_one_cancelled_on_the_wire_takes_nobody_s_answer(self) -> None:
        """Its own answer goes nowhere."""
        hub, _ = hub_of()
        futures = [hub.ask(BUCKET, b"%d" % number, 1) for number in range(3)]
        (batch,) = hub.take()
        futures[1].cancel()
        batch.settle(reply_to(batch))
        assert [(await futures[number])[1] for number in (0, 2)] == [0, 2]


class TestForeign:
    async def test_is_told_to_those_who_asked_for_the_key(self) -> None:
        """The others have their answers."""
        hub, _ = hub_of()
        futures = [hub.ask(BUCKET, b"%d" % number, 1) for number in range(3)]
        (batch,) = hub.take()
        batch.settle([1, 0, 0, 0, -1, 0, 0, 0, 1, 2, 0, 0])
        assert [(await futures[0])[1], (await futures[2])[1]] == [0, 2]
        with pytest.raises(BackendError, match="did not write"):
            await futures[1]

    async def test_is_told_to_the_caller_of_the_batch(self) -> None:
        """One error for all of it."""
        hub, _ = hub_of()
        (whole,) = hub.ask_many(BUCKET, [b"0", b"1"], [1, 1])
        (batch,) = hub.take()
        batch.settle([0, 0, 0, 0, -1, 0, 0, 0])
        with pytest.raises(BackendError, match="b'1'"):
            await whole


class TestDeadline:
    async def test_ends_the_wait_of_those_whose_time_has_come(self) -> None:
        """Whoever came later has more time, and is still asked for."""
        hub, _ = hub_of(deadline=0.05)
        first = hub.ask(BUCKET, b"1", 1)
        await turn()
        hub.deadline = LONG
        second = hub.ask(BUCKET, b"2", 1)
        await until_done(first)
        with pytest.raises(BackendTimeout, match="no answer within"):
            await first
        (batch,) = hub.take()
        assert batch.keys == [b"2"]
        batch.settle(reply_to(batch))
        assert (await second)[1] == 2
        assert hub.stats.timeouts == 1

    async def test_the_last_of_a_call_drops_the_connection(self) -> None:
        """Its answers are of no more use to anyone; until then they are."""
        hub, lane = hub_of(deadline=0.05)
        first = hub.ask(BUCKET, b"1", 1)
        await turn()
        hub.deadline = 0.15
        second = hub.ask(BUCKET, b"2", 1)
        await turn()
        (batch,) = hub.take()
        batch.lane = cast("Lane", lane)
        await until_done(first)
        assert lane.dropped == 0
        await until_done(second)
        assert lane.dropped == 1

    async def test_of_an_answered_call_drops_nothing(self) -> None:
        """Another call of the same write may still wait on that connection."""
        hub, lane = hub_of(deadline=0.05)
        hub.ask(BUCKET, b"1", 1)
        await turn()
        (batch,) = hub.take()
        batch.lane = cast("Lane", lane)
        batch.settle(reply_to(batch))
        hub.deadline = 0.05
        later = hub.ask(WINDOW, b"2", 1)  # ends after the deadline of the first
        await until_done(later)
        assert lane.dropped == 0
        with pytest.raises(BackendTimeout):
            await later

    async def test_holds_for_a_caller_s_own_batch(self) -> None:
        """And is said when it was the pool that had no connection."""
        hub, _ = hub_of(deadline=0.05)
        hub.starved = True
        (whole,) = hub.ask_many(BUCKET, [b"1", b"2"], [1, 1])
        await until_done(whole)
        with pytest.raises(BackendOverloaded, match="max_connections"):
            await whole

    async def test_an_answered_call_is_let_go_before_it(self) -> None:
        """With a deadline of seconds, all the traffic of seconds would be kept else."""
        hub, _ = hub_of()
        future = hub.ask(BUCKET, b"1", 1)
        await turn()
        (batch,) = hub.take()
        batch.settle(reply_to(batch))
        await future
        gone = weakref.ref(future)
        del future, batch
        gc.collect()
        assert gone() is None

    async def test_its_timer_keeps_no_caller_s_context(self) -> None:
        """Or the first request would be kept for as long as others follow."""

        class Request:
            pass

        current: contextvars.ContextVar[Request] = contextvars.ContextVar("current")
        hub, _ = hub_of(deadline=0.02)
        gone: list[weakref.ref[Request]] = []
        futures: list[asyncio.Future[Any]] = []

        async def serve() -> None:
            request = Request()
            current.set(request)
            gone.append(weakref.ref(request))
            futures.append(hub.ask(BUCKET, b"1", 1))

        await asyncio.create_task(serve())
        await turn()
        hub.deadline = LONG
        hub.ask(BUCKET, b"2", 1)
        await until_done(*futures)
        assert isinstance(futures.pop().exception(), BackendTimeout)
        hub.take()
        gc.collect()
        assert gone[0]() is None


class TestBacklog:
    async def test_is_bounded(self) -> None:
        """One question more is refused at once; what was sent makes room."""
        hub, _ = hub_of(backlog=3)
        for number in range(3):
            hub.ask(BUCKET, b"%d" % number, 1)
        with pytest.raises(BackendOverloaded, match="3 questions already wait to be sent: raise max_backlog"):
            hub.ask(BUCKET, b"3", 1)
        with pytest.raises(BackendOverloaded):
            hub.ask_many(BUCKET, [b"3"], [1])
        hub.take()
        hub.ask(BUCKET, b"3", 1)
        assert [batch.keys for batch in hub.take()] == [[b"3"]]


class TestClosing:
    async def test_is_told_to_whoever_waits(self) -> None:
        """Each with an error of its own."""
        hub, _ = hub_of()
        futures: list[asyncio.Future[Any]] = [hub.ask(BUCKET, b"%d" % number, 1) for number in range(3)]
        futures += hub.ask_many(BUCKET, [b"1", b"2"], [1, 1])
        await hub.aclose()
        errors = [future.exception() for future in futures]
        assert all(isinstance(error, BackendUnavailable) and "closed" in str(error) for error in errors)
        assert len(set(map(id, errors))) == len(errors)
        assert not hub.has_work

    async def test_leaves_a_hub_that_can_be_asked(self) -> None:
        """It starts anew."""
        hub, _ = hub_of()
        hub.ask(BUCKET, b"1", 1)
        await hub.aclose()
        await hub.aclose()
        future = hub.ask(BUCKET, b"2", 1)
        (batch,) = hub.take()
        assert batch.keys == [b"2"]
        batch.settle(reply_to(batch))
        assert (await future)[1] == 2
