"""What a backend tells about itself, and who may listen."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from typing import Any

import pytest

from aiolimit import BackendError, BackendUnavailable, CircuitBreaker, Limiter, RedisBackend
from aiolimit.events import BreakerMoved, DecidedWithout, Event, Exchanged, LogListener

from ..support.servers import HOST, Server, free_port

GONE = BackendUnavailable("gone")


def without(decisions: int = 1, limiter: str = "api", error: BackendError = GONE) -> DecidedWithout:
    """Decisions made without the server."""
    return DecidedWithout("redis://h:1/0", limiter, "fail_open", decisions, error)


@pytest.mark.parametrize("server_kind", ["redis"], indirect=True)
class TestOfABackend:
    async def test_one_for_each_exchange(self, server: Server) -> None:
        """With how many questions it carried in how many calls; callers at the same moment share one."""
        told: list[Event] = []
        async with RedisBackend.from_url(server.url(), deadline=10, listeners=[told.append]) as backend:
            limiter, other = Limiter("10/h", backend), Limiter("20/h", backend)
            await limiter.try_acquire("first")
            told.clear()
            await asyncio.gather(
                *(limiter.try_acquire(f"k{number}") for number in range(20)), other.try_acquire("k"), limiter.peek("k")
            )
            (event,) = told
            assert isinstance(event, Exchanged)
            assert (event.decisions, event.calls, event.error) == (22, 3, None)
            assert event.server == server.url()
            assert 0 < event.seconds < 10

    async def test_they_add_up_to_the_counters(self, server: Server) -> None:
        """Whatever is asked."""
        told: list[Any] = []
        async with RedisBackend.from_url(server.url(), deadline=10, listeners=[told.append]) as backend:
            limiter = Limiter("10/h", backend)
            for size in (1, 600, 3):
                await limiter.try_acquire_many([f"k{number}" for number in range(size)])
            assert {type(event) for event in told} == {Exchanged}
            assert sum(event.decisions for event in told) == backend.stats.decisions == 604
            assert sum(event.calls for event in told) == backend.stats.calls == 5

    async def test_an_error_of_the_server_is_in_it(self, server: Server) -> None:
        """As the callers hear it."""
        told: list[Any] = []
        server.admin.config_set("maxmemory-policy", "noeviction")
        server.admin.config_set("maxmemory", 1)
        async with RedisBackend.from_url(server.url(), deadline=10, listeners=[told.append]) as backend:
            await Limiter("10/h", backend).try_acquire("k")
            await asyncio.sleep(0)
        exchanged, decided = told
        assert isinstance(exchanged.error, BackendUnavailable)
        assert "memory" in str(exchanged.error)
        assert isinstance(decided, DecidedWithout)
        assert "memory" in str(decided.error)

    async def test_no_password_is_told(self, server: Server) -> None:
        """The server's address comes without."""
        server.admin.execute_command("ACL", "SETUSER", "u", "on", ">sesame", "~*", "+@all")
        told: list[Any] = []
        url = server.url(username="u", password="sesame")
        async with RedisBackend.from_url(url, deadline=10, listeners=[told.append]) as backend:
            await Limiter("10/h", backend).try_acquire("k")
            backend.breaker.force_open()
            await Limiter("10/h", backend).try_acquire("k")
            await asyncio.sleep(0)
        assert {type(event) for event in told} == {Exchanged, BreakerMoved, DecidedWithout}
        assert "sesame" not in repr(told)

    async def test_a_listener_that_raises_harms_nobody(self, server: Server, caplog: pytest.LogCaptureFixture) -> None:
        """The next one hears, every caller has its answer, and the mistake is in the log."""
        told: list[Event] = []

        def broken(event: Event) -> None:
            raise ZeroDivisionError

        async with RedisBackend.from_url(server.url(), deadline=10, listeners=[broken, told.append]) as backend:
            limiter = Limiter("10/h", backend)
            assert (await limiter.try_acquire("k")).source == "redis"
            backend.breaker.force_open()
            assert (await limiter.try_acquire("k")).source == "fail_open"
            await asyncio.sleep(0)
            backend.breaker.reset()
            assert (await limiter.try_acquire("k")).remaining == 8
        assert [type(event) for event in told] == [Exchanged, BreakerMoved, DecidedWithout, BreakerMoved, Exchanged]
        assert "a listener failed" in caplog.text
        assert "ZeroDivisionError" in caplog.text

    async def test_a_listener_may_ask_about_the_backend(self, server: Server) -> None:
        """It finds the state that it is told of."""
        states: list[tuple[str, str]] = []

        def look(event: Event) -> None:
            if isinstance(event, BreakerMoved):
                states.append((event.new, backend.breaker.state))

        async with RedisBackend.from_url(server.url(), deadline=10, listeners=[look]) as backend:
            backend.breaker.force_open()
            backend.breaker.reset()
        assert states == [("open", "open"), ("closed", "closed")]


class TestWithoutAServer:
    async def test_one_for_each_turn_limiter_and_source(self) -> None:
        """However many decisions that were."""
        told: list[Event] = []
        backend = RedisBackend.from_url(f"redis://{HOST}:1", listeners=[told.append])
        backend.breaker.force_open()
        told.clear()
        first, second = Limiter("10/h", backend, name="a"), Limiter("10/h", backend, name="b", failure="closed")
        for _ in range(3):
            await asyncio.gather(
                *(first.try_acquire(f"k{number}") for number in range(50)),
                first.try_acquire_many(["k"] * 500),
                first.try_acquire("k", failure="local"),
                second.try_acquire("k"),
            )
            await asyncio.sleep(0)
        seen = Counter(
            (event.limiter, event.source, event.decisions) for event in told if type(event) is DecidedWithout
        )
        assert seen == {("a", "fail_open", 550): 3, ("a", "fallback", 1): 3, ("b", "fail_closed", 1): 3}
        assert len(told) == 9

    async def test_one_for_each_move_of_the_breaker(self) -> None:
        """In their order, with the state before and after."""
        told: list[Event] = []
        backend = RedisBackend.from_url(
            f"redis://{HOST}:{free_port()}",
            deadline=5,
            breaker=CircuitBreaker(failures=2, open_for=0.01, jitter=lambda: 0.0),
            listeners=[told.append],
        )
        async with backend:
            limiter = Limiter("10/h", backend)
            async with asyncio.timeout(10):
                while backend.stats.failures < 4:
                    await limiter.try_acquire("k")
                    await asyncio.sleep(0.001)
        moves = [(event.old, event.new) for event in told if isinstance(event, BreakerMoved)]
        assert moves == [("closed", "open"), *[("open", "half_open"), ("half_open", "open")] * 2]

    async def test_why_is_told(self) -> None:
        """The error that the decision was made for."""
        told: list[Event] = []
        async with RedisBackend.from_url(
            f"redis://{HOST}:{free_port()}", deadline=5, listeners=[told.append]
        ) as backend:
            await Limiter("10/h", backend, name="api").try_acquire("k")
            await asyncio.sleep(0)
        (event,) = told
        assert isinstance(event, DecidedWithout)
        assert (event.limiter, event.source, event.decisions) == ("api", "fail_open", 1)
        assert "not available" in str(event.error)


@pytest.mark.parametrize("event", [without(), BreakerMoved("s", "closed", "open"), Exchanged("s", 1, 1, 0.1, None)])
def test_an_event_is_a_value(event: Event) -> None:
    """Frozen, and equal to one like it."""
    assert dataclasses.replace(event) == event
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.server = "other"  # type: ignore[misc]  # that is the point


class TestLogListener:
    @staticmethod
    def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
        """What was written, from this level on."""
        return [
            record.getMessage() for record in caplog.records if record.name == "aiolimit" and record.levelno >= level
        ]

    def test_writes_the_first_at_once_and_then_at_a_bounded_rate(self, caplog: pytest.LogCaptureFixture) -> None:
        """A million decisions in a minute are seven lines, which count all of them but the last few seconds'."""
        now = 0.0
        listener = LogListener(10.0, clock=lambda: now)
        for tick in range(6_001):
            now = tick / 100
            listener(without(160))
        lines = self.lines(caplog)
        assert len(lines) == 7
        counted = [int(line.split(" decisions ")[0].rsplit(" ", 1)[1]) for line in lines]
        assert sum(counted) == 6_001 * 160
        assert counted[0] == 160

    def test_writes_of_each_limiter(self, caplog: pytest.LogCaptureFixture) -> None:
        """One that fails first does not hide the next."""
        listener = LogListener(clock=lambda: 0.0)
        for _ in range(10):
            listener(without(limiter="a"))
            listener(without(limiter="b"))
        lines = self.lines(caplog)
        assert len(lines) == 2
        assert "'a'" in lines[0]
        assert "'b'" in lines[1]

    def test_says_where_what_how_many_and_why(self, caplog: pytest.LogCaptureFixture) -> None:
        """As a warning."""
        LogListener()(without(7))
        (line,) = self.lines(caplog, logging.WARNING)
        for part in ("redis://h:1/0", "'api'", "7 decisions", "fail_open", "gone"):
            assert part in line

    def test_warns_of_an_opening_and_mentions_the_other_moves(self, caplog: pytest.LogCaptureFixture) -> None:
        """Somebody shall wake up for the one and not for the others."""
        caplog.set_level(logging.INFO, "aiolimit")
        listener = LogListener()
        listener(BreakerMoved("s", "closed", "open"))
        listener(BreakerMoved("s", "open", "half_open"))
        listener(BreakerMoved("s", "half_open", "closed"))
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
        assert "open, was closed" in caplog.records[0].getMessage()

    def test_is_quiet_about_exchanges(self, caplog: pytest.LogCaptureFixture) -> None:
        """Those that went well leave no line at any level, the others one for who debugs."""
        caplog.set_level(logging.DEBUG, "aiolimit")
        listener = LogListener()
        listener(Exchanged("s", 3, 1, 0.1, None))
        assert not caplog.records
        listener(Exchanged("s", 3, 1, 0.1, GONE))
        assert [record.levelname for record in caplog.records] == ["DEBUG"]

    async def test_is_there_without_any_set_up_and_tells_no_key(self, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever the verb, from an outage through the breaker to a reset."""
        caplog.set_level(logging.DEBUG, "aiolimit")
        async with RedisBackend.from_url(f"redis://{HOST}:{free_port()}", deadline=5) as backend:
            limiter = Limiter("10/h", backend)
            for _ in range(10):
                await limiter.try_acquire("alice@example.org")
                await limiter.try_acquire_many([b"alice@example.org"])
                await limiter.charge("alice@example.org")
            await asyncio.sleep(0)
            backend.breaker.reset()
            await asyncio.sleep(0)
        assert self.lines(caplog)
        assert "alice" not in caplog.text

    async def test_is_replaced_by_the_listeners_given(self, caplog: pytest.LogCaptureFixture) -> None:
        """None at all is possible, too."""
        caplog.set_level(logging.INFO, "aiolimit")
        async with RedisBackend.from_url(f"redis://{HOST}:{free_port()}", deadline=5, listeners=[]) as backend:
            await Limiter("10/h", backend).try_acquire("k")
            backend.breaker.force_open()
            await asyncio.sleep(0)
        assert not caplog.records
