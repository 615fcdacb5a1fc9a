"""White-box: one connection at a time, on connections that do as the test says."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

import pytest
from redis import exceptions as redis_errors

from aiolimit import BackendError, BackendTimeout, BackendUnavailable, CircuitBreaker
from aiolimit.backends.batch import kind
from aiolimit.backends.batching import Hub
from aiolimit.backends.lane import Lane
from aiolimit.backends.stats import Stats
from aiolimit.scripts import load

from ..integration.common import until

BUCKET = kind(load("token_bucket"), (b"0", b"1"))
WINDOW = kind(load("fixed_window"), (b"0", b"1"))
OK = [1, 9, 0, 0]
LONG = 20.0

Reply = list[int] | Exception | None
current: contextvars.ContextVar[str] = contextvars.ContextVar("current")


class FakeConnection:
    """Remembers what it is sent, and replies with what the test puts in; None is no reply for ever."""

    def __init__(self, *replies: Reply) -> None:
        self._reader = asyncio.StreamReader()
        self.replies = list(replies)
        self.sent: list[list[bytes]] = []
        self.open = True
        self.contexts: list[str | None] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def send_packed_command(self, command: list[bytes], *, check_health: bool = True) -> None:
        """One write."""
        assert self.open
        assert not check_health
        self.sent.append(command)
        self.contexts.append(current.get(None))

    async def read_response(self, **_: object) -> list[int]:
        """The next reply."""
        await self.answers.wait()
        reply = self.replies.pop(0) if self.replies else OK
        if reply is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(reply, Exception):
            raise reply
        return cast("list[int]", reply)

    async def disconnect(self, **_: object) -> None:
        """Close."""
        self.open = False

    def hang_up(self) -> None:
        """What it looks like when the server closes an idle connection."""
        self._reader.feed_eof()

    def verbs(self) -> list[list[bytes]]:
        """The commands of each write."""
        return [[packed.split(b"\r\n")[2] for packed in write] for write in self.sent]


class FakeConnector:
    """Hands out the test's connections, or raises its errors."""

    only_one = False

    def __init__(self, *makes: FakeConnection | Exception | None) -> None:
        self.makes = list(makes)
        self.out = 0
        self.most_out = 0
        self.connecting = 0

    async def connect(self) -> FakeConnection:
        """The next one; None is a server that accepts and never says a word."""
        self.connecting += 1
        try:
            await asyncio.sleep(0)
            make = self.makes.pop(0)
            if make is None:
                await asyncio.get_running_loop().create_future()
        finally:
            self.connecting -= 1
        if isinstance(make, Exception):
            raise make
        assert isinstance(make, FakeConnection)
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        return make

    async def release(self, connection: FakeConnection) -> None:
        """Count it."""
        assert connection is not None
        self.out -= 1


HubOf = Callable[..., Hub]


@pytest.fixture
async def hub_of() -> AsyncIterator[HubOf]:
    """Makes hubs on such connectors, and closes them."""
    made: list[tuple[Hub, FakeConnector]] = []

    def make(connector: FakeConnector, *, lanes: int = 1, deadline: float = LONG) -> Hub:
        hub = Hub(
            asyncio.get_running_loop(),
            lambda hub: Lane(hub, cast("Any", connector)),
            breaker=CircuitBreaker(),
            tell=lambda _: None,
            server="test",
            stats=Stats(),
            lanes=lanes,
            deadline=deadline,
            backlog=1000,
        )
        made.append((hub, connector))
        return hub

    yield make
    for hub, connector in made:
        await hub.aclose()
        assert connector.out == 0, "connections that were not given back"


async def outcome(future: asyncio.Future[Any]) -> object:
    """The answer or the error."""
    async with asyncio.timeout(LONG):
        try:
            return await future
        except BackendError as error:
            return error


async def test_two_kinds_go_in_one_write(hub_of: HubOf) -> None:
    """And each has its own reply."""
    connection = FakeConnection([1, 1, 0, 0], [1, 2, 0, 0])
    hub = hub_of(FakeConnector(connection))
    one, two = hub.ask(BUCKET, b"a", 1), hub.ask(WINDOW, b"a", 1)
    assert [(await one)[1], (await two)[1]] == [1, 2]
    assert connection.verbs() == [[b"EVALSHA", b"EVALSHA"]]


async def test_what_comes_meanwhile_goes_together(hub_of: HubOf) -> None:
    """While a call is in flight the queue grows; then all of it goes."""
    connection = FakeConnection(OK, OK * 3)
    connection.answers.clear()
    hub = hub_of(FakeConnector(connection))
    first = hub.ask(BUCKET, b"a", 1)
    await until(lambda: connection.sent)
    later = [hub.ask(BUCKET, b"%d" % number, 1) for number in range(3)]
    await asyncio.sleep(0)
    connection.answers.set()
    await asyncio.gather(first, *later)
    assert len(connection.sent) == 2


class TestUnknownScript:
    async def test_sends_the_text_for_that_call_alone(self, hub_of: HubOf) -> None:
        """What was answered is not sent again."""
        connection = FakeConnection(OK, redis_errors.NoScriptError("NOSCRIPT"), OK)
        hub = hub_of(FakeConnector(connection))
        futures = [hub.ask(BUCKET, b"a", 1), hub.ask(WINDOW, b"b", 1)]
        assert [await outcome(future) for future in futures] == [tuple(OK)] * 2
        assert connection.verbs() == [[b"EVALSHA", b"EVALSHA"], [b"EVAL"]]
        assert b"\r\nb\r\n" in connection.sent[1][0]

    async def test_sends_each_text_once(self, hub_of: HubOf) -> None:
        """Other calls of the same script find it there."""
        missing = redis_errors.NoScriptError("NOSCRIPT")
        connection = FakeConnection(missing, missing, missing)
        hub = hub_of(FakeConnector(connection))
        futures = [hub.ask_many(at, [b"a"], [1])[0] for at in (BUCKET, WINDOW, BUCKET)]
        assert [await outcome(future) for future in futures] == [[tuple(OK)]] * 3
        assert connection.verbs() == [[b"EVALSHA"] * 3, [b"EVAL", b"EVAL", b"EVALSHA"]]
        assert hub.stats.script_loads == 2

    async def test_sends_it_again_when_it_is_lost_again(self, hub_of: HubOf) -> None:
        """A flush between the two writes."""
        missing = redis_errors.NoScriptError("NOSCRIPT")
        connection = FakeConnection(missing, missing, OK, missing, OK)
        hub = hub_of(FakeConnector(connection))
        futures = [hub.ask_many(BUCKET, [b"a"], [1])[0] for _ in range(2)]
        assert [await outcome(future) for future in futures] == [[tuple(OK)]] * 2
        assert connection.verbs() == [[b"EVALSHA"] * 2, [b"EVAL", b"EVALSHA"], [b"EVAL"]]


class TestErrors:
    async def test_in_a_reply_is_for_its_callers_alone(self, hub_of: HubOf) -> None:
        """The connection goes on."""
        connection = FakeConnection(redis_errors.OutOfMemoryError("OOM"), OK)
        hub = hub_of(FakeConnector(connection))
        one, other, two = hub.ask(BUCKET, b"a", 1), hub.ask(BUCKET, b"b", 1), hub.ask(WINDOW, b"a", 1)
        errors = [await outcome(one), await outcome(other)]
        assert all(isinstance(error, BackendUnavailable) for error in errors)
        assert errors[0] is not errors[1]
        assert await outcome(two) == tuple(OK)
        assert connection.open

    @pytest.mark.parametrize(
        "error",
        [
            redis_errors.ConnectionError("Connection closed by server."),
            redis_errors.ReadOnlyError("READONLY You can't write against a read only replica."),
            redis_errors.BusyLoadingError("Redis is loading the dataset in memory"),
            ConnectionResetError(),
            RuntimeError("closed transport"),
            AttributeError("'NoneType' object has no attribute 'write'"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_of_the_connection_ends_it(self, hub_of: HubOf, error: Exception) -> None:
        """Who waits on it hears so, nothing is sent again, and the next call opens another."""
        first, second = FakeConnection(OK, error), FakeConnection()
        hub = hub_of(FakeConnector(first, second))
        answered, lost = hub.ask(BUCKET, b"a", 1), hub.ask(WINDOW, b"a", 1)
        assert await outcome(answered) == tuple(OK)
        assert isinstance(await outcome(lost), BackendUnavailable)
        assert not first.open
        assert second.sent == []
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)
        assert hub.stats.failures == 1

    async def test_of_a_reply_that_makes_no_sense_ends_it(self, hub_of: HubOf) -> None:
        """Whatever it is, every caller hears something and the lane lives on."""
        first, second = FakeConnection([1, 2, 3]), FakeConnection()
        hub = hub_of(FakeConnector(first, second))
        assert isinstance(await outcome(hub.ask(BUCKET, b"a", 1)), BackendError)
        assert not first.open
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)


class TestConnecting:
    async def test_failing_is_told_to_all_who_wait(self, hub_of: HubOf) -> None:
        """At once, and the next question tries again."""
        connector = FakeConnector(redis_errors.ConnectionError("Error 111 connecting"), FakeConnection())
        hub = hub_of(connector)
        futures = [hub.ask(BUCKET, b"a", 1), hub.ask(WINDOW, b"b", 1)]
        for future in futures:
            assert "Error 111" in str(await outcome(future))
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)

    async def test_to_a_silent_server_ends_with_the_deadline(self, hub_of: HubOf) -> None:
        """And the next question tries again."""
        connector = FakeConnector(None, FakeConnection())
        hub = hub_of(connector, deadline=0.05)
        assert isinstance(await outcome(hub.ask(BUCKET, b"a", 1)), BackendTimeout)
        await until(lambda: not connector.connecting)
        hub.deadline = LONG
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)

    async def test_waits_for_a_full_pool(self, hub_of: HubOf) -> None:
        """Which is no outage: the question goes as soon as a connection comes free."""
        full = redis_errors.MaxConnectionsError("Too many connections")
        hub = hub_of(FakeConnector(full, full, FakeConnection()))
        assert await outcome(hub.ask(BUCKET, b"a", 1)) == tuple(OK)
        assert hub.stats.failures == 0

    async def test_in_vain_leaves_the_work_to_another_lane(self, hub_of: HubOf) -> None:
        """One connection is enough, even if a second cannot be had."""
        connection = FakeConnection(OK, OK)
        connector = FakeConnector(connection, redis_errors.ConnectionError("no more"))
        hub = hub_of(connector, lanes=2)
        first = hub.ask(BUCKET, b"a", 1)
        await until(lambda: connection.sent)
        second = hub.ask(BUCKET, b"b", 1)
        assert [await outcome(first), await outcome(second)] == [tuple(OK)] * 2

    async def test_in_vain_wakes_a_lane_that_is_idle(self, hub_of: HubOf) -> None:
        """Whichever is asked first: a connection that works is used, though another has died and cannot be replaced."""
        for died in (0, 1):
            connections = [FakeConnection(), FakeConnection()]
            connector = FakeConnector(*connections, *[redis_errors.ConnectionError("no more")] * 9)
            hub = hub_of(connector, lanes=2)
            for connection in connections:
                connection.answers.clear()
            both: list[asyncio.Future[Any]] = []
            for connection in connections:
                both.append(hub.ask(BUCKET, b"a", 1))
                await until(partial(getattr, connection, "sent"))
            for connection in connections:
                connection.answers.set()
            await asyncio.gather(*both)
            connections[died].hang_up()
            for _ in range(3):
                assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)

    async def test_opens_one_at_a_time_and_no_more_than_lanes(self, hub_of: HubOf) -> None:
        """However many ask."""
        connector = FakeConnector(*(FakeConnection() for _ in range(9)))
        hub = hub_of(connector, lanes=3)
        for number in range(50):
            await outcome(hub.ask(BUCKET, b"%d" % number, 1))
        assert connector.most_out <= 3


class TestIdle:
    async def test_a_connection_that_died_costs_no_decision(self, hub_of: HubOf) -> None:
        """It is seen before anything is written to it."""
        first, second = FakeConnection(), FakeConnection()
        hub = hub_of(FakeConnector(first, second))
        assert await outcome(hub.ask(BUCKET, b"a", 1)) == tuple(OK)
        first.hang_up()
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)
        assert (len(first.sent), len(second.sent)) == (1, 1)

    async def test_a_borrowed_connection_is_given_back(self, hub_of: HubOf) -> None:
        """To a pool that has no other."""
        connector = FakeConnector(FakeConnection())
        connector.only_one = True
        hub = hub_of(connector)
        await outcome(hub.ask(BUCKET, b"a", 1))
        await until(lambda: not connector.out)


class TestGivenUp:
    async def test_a_call_that_is_late_for_all_drops_its_connection(self, hub_of: HubOf) -> None:
        """Late answers are for nobody, and the next call has a connection of its own."""
        first, second = FakeConnection(None), FakeConnection()
        connector = FakeConnector(first, second)
        hub = hub_of(connector, deadline=0.05)
        late = hub.ask(BUCKET, b"a", 1)
        assert isinstance(await outcome(late), BackendTimeout)
        hub.deadline = LONG
        assert await outcome(hub.ask(BUCKET, b"b", 1)) == tuple(OK)
        assert not first.open
        assert connector.out == 1

    async def test_closing_ends_a_call_in_flight(self, hub_of: HubOf) -> None:
        """Its callers hear of it."""
        first = FakeConnection(None)
        hub = hub_of(FakeConnector(first))
        future = hub.ask(BUCKET, b"a", 1)
        await until(lambda: first.sent)
        await hub.aclose()
        error = await outcome(future)
        assert isinstance(error, BackendUnavailable)
        assert "closed" in str(error)
        assert not first.open

    async def test_closing_is_no_sign_of_life(self, hub_of: HubOf) -> None:
        """A breaker that is waiting for its probe's answer learns nothing from it."""
        first = FakeConnection(None)
        hub = hub_of(FakeConnector(first))
        for _ in range(5):
            hub.breaker.failed(hub.breaker.generation, 0.0)
        assert not hub.breaker.is_closed
        probe = hub.ask(BUCKET, b"a", 1)
        await until(lambda: first.sent)
        await hub.aclose()
        assert isinstance(await outcome(probe), BackendUnavailable)
        assert not hub.breaker.is_closed


async def test_a_lane_runs_in_no_caller_s_context(hub_of: HubOf) -> None:
    """It outlives the request that started it."""
    connection = FakeConnection()
    hub = hub_of(FakeConnector(connection))
    current.set("the first request")
    await outcome(hub.ask(BUCKET, b"a", 1))
    assert connection.contexts == [None]
