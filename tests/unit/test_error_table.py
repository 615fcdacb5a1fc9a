"""What an error of the client or the server means, row by row: to the caller, and to the circuit breaker."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Connection, ConnectionPool, Redis

from aiolimit import (
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    CircuitBreaker,
    Limiter,
    RedisBackend,
)
from aiolimit.backends.wire import translate

Where = Literal["connecting", "sending", "in a reply"]
OK = [1, 9, 0, 0]

OUTAGES: list[tuple[Exception, str]] = [
    # What the server says of itself: with its class, and bare as it comes out of a script.
    (redis_errors.BusyLoadingError("Redis is loading the dataset in memory"), "loading"),
    (redis_errors.ResponseError("LOADING Redis is loading the dataset in memory"), "LOADING"),
    (redis_errors.ResponseError("BUSY Redis is busy running a script."), "BUSY"),
    (redis_errors.MasterDownError("Link with MASTER is down"), "MASTER"),
    (redis_errors.ResponseError("MASTERDOWN Link with MASTER is down"), "MASTERDOWN"),
    (redis_errors.ReadOnlyError("You can't write against a read only replica."), "read only"),
    (redis_errors.ResponseError("READONLY You can't write against a read only replica."), "READONLY"),
    (redis_errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "maxmemory"),
    (redis_errors.ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "OOM"),
    (redis_errors.ResponseError("NOREPLICAS Not enough good replicas to write."), "NOREPLICAS"),
    (redis_errors.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "MISCONF"),
    (redis_errors.ClusterDownError("The cluster is down"), "cluster is down"),
    (redis_errors.ResponseError("CLUSTERDOWN The cluster is down"), "CLUSTERDOWN"),
    (redis_errors.TryAgainError("Multiple keys request during rehashing of slot"), "rehashing"),
    (redis_errors.RedisClusterException("Redis Cluster cannot be connected."), "cannot be connected"),
    (redis_errors.ConnectionError("max number of clients reached"), "max number of clients"),
    # The network.
    (redis_errors.TimeoutError("Timeout reading from 127.0.0.1:6379"), "in time"),
    (TimeoutError(), "in time"),
    (redis_errors.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connect call failed."), "Error 111"),
    (redis_errors.ConnectionError("Connection closed by server."), "closed by server"),
    (ConnectionRefusedError(111, "Connection refused"), "refused"),
    (ConnectionResetError(104, "Connection reset by peer"), "reset by peer"),
    (BrokenPipeError(32, "Broken pipe"), "Broken pipe"),
    (OSError(113, "No route to host"), "No route"),
    (socket.gaierror(-2, "Name or service not known"), "Name or service"),
    (asyncio.IncompleteReadError(b"*4", 20), "IncompleteReadError"),
    (EOFError(), "EOFError"),
    # A transport that goes down under the client.
    (RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"), "handler"),
    (AttributeError("'NoneType' object has no attribute 'write'"), "NoneType"),
    # Something that is not Redis.
    (redis_errors.InvalidResponse("Protocol Error: b'HTTP/1.1 400 Bad Request'"), "Protocol Error"),
]
MISTAKES: list[tuple[Exception, str]] = [
    (redis_errors.AuthenticationError("invalid username-password pair or user is disabled."), "user:password@"),
    (redis_errors.AuthenticationError("Authentication required."), "user:password@"),
    (redis_errors.AuthenticationWrongNumberOfArgsError("wrong number of arguments for 'auth'"), "user:password@"),
    (redis_errors.ResponseError("NOAUTH Authentication required."), "user:password@"),
    (redis_errors.ResponseError("WRONGPASS invalid username-password pair"), "user:password@"),
    (redis_errors.ResponseError("Protocol error: unauthenticated multibulk length"), "user:password@"),
    (redis_errors.NoPermissionError("User u has no permissions to run the 'evalsha' command"), "+evalsha"),
    (redis_errors.ResponseError("NOPERM User u has no permissions to run the 'evalsha' command"), "+evalsha"),
    (redis_errors.ResponseError("ERR The user executing the script can't run this command or subcommand"), "+time"),
    (redis_errors.ResponseError("ACL failure in script: User u has no permissions to run 'mget'"), "+mget"),
    (redis_errors.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), "WRONGTYPE"),
    (redis_errors.ResponseError("CROSSSLOT Keys in request don't hash to the same slot"), "CROSSSLOT"),
    (redis_errors.ResponseError("ERR unknown command 'EVALSHA'"), "unknown command"),
    (redis_errors.ResponseError("ERR Error compiling script (new function): user_script:1"), "compiling"),
    (redis_errors.MovedError("12182 127.0.0.1:7000"), "12182"),
    (redis_errors.ResponseError("DB index is out of range"), "out of range"),
]
OVERLOADS: list[Exception] = [
    redis_errors.MaxConnectionsError(),
    redis_errors.MaxConnectionsError("Too many connections"),
    redis_errors.ConnectionError("Too many connections"),  # redis-py 5.2
    redis_errors.ConnectionError("No connection available."),  # its blocking pool
]


def name(value: object) -> str:
    """A short name for a row."""
    return f"{type(value).__name__}-{value!s:.24}" if isinstance(value, Exception) else ""


class Faulty(Connection):
    """A connection that fails as its class says, and otherwise answers without a server."""

    error: Exception
    where: Where

    async def connect(self) -> None:
        """Open, or not."""
        if self.where == "connecting":
            raise self.error
        self._reader = asyncio.StreamReader()
        self._writer = None

    async def can_read(self) -> bool:
        """Nothing is left over from before."""
        return False

    can_read_destructive = can_read  # before redis-py 8

    async def send_packed_command(self, command: Any, check_health: bool | None = True) -> None:
        """Send, or not."""
        if self.where == "sending":
            raise self.error

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """An error as the reply."""
        if self.where == "in a reply":
            raise self.error
        return OK

    async def disconnect(self, *args: Any, **options: Any) -> None:
        """Close."""
        self._reader = None


@dataclass
class Outcome:
    """What came of a question."""

    source: str
    raised: BackendError | None
    failures: int
    state: str


async def ask(error: Exception, where: Where, times: int = 6, **options: Any) -> Outcome:
    """What so many callers see, one after the other, where this error always happens."""
    kind = type("FaultyHere", (Faulty,), {"error": error, "where": where})
    pool = ConnectionPool(connection_class=kind, max_connections=4)
    async with RedisBackend(Redis(connection_pool=pool), deadline=0.2, listeners=[], **options) as backend:
        limiter = Limiter("10/h", backend, failure="closed")
        source, raised = "", None
        for _ in range(times):
            try:
                source = (await limiter.try_acquire("k")).source
            except BackendError as found:
                raised = found
        return Outcome(source, raised, backend.stats.failures, backend.breaker.state)


@pytest.mark.parametrize(("error", "said"), OUTAGES, ids=name)
def test_an_outage_is_unavailable_and_says_why(error: Exception, said: str) -> None:
    """The failure policy decides on these; the text of the error is kept."""
    translated = translate(error)
    assert isinstance(translated, BackendUnavailable)
    assert not isinstance(translated, BackendOverloaded)
    assert isinstance(translated, BackendTimeout) == isinstance(error, TimeoutError | redis_errors.TimeoutError)
    assert said in str(translated)


@pytest.mark.parametrize(("error", "remedy"), MISTAKES, ids=name)
def test_a_mistake_is_an_error_that_says_what_to_do(error: Exception, remedy: str) -> None:
    """And no outage."""
    translated = translate(error)
    assert type(translated) is BackendError
    assert remedy in str(translated)


@pytest.mark.parametrize("error", OVERLOADS, ids=name)
def test_a_full_pool_is_back_pressure(error: Exception) -> None:
    """With what to raise."""
    translated = translate(error)
    assert type(translated) is BackendOverloaded
    assert "max_connections" in str(translated)


def test_an_error_that_nobody_knows_is_not_hidden() -> None:
    """It reaches the caller as a mistake, with its class and its text."""
    translated = translate(ZeroDivisionError("division by zero"))
    assert type(translated) is BackendError
    assert "ZeroDivisionError: division by zero" in str(translated)


# Of these each text is a reply of the server; the others break the connection.
def _where(error: Exception) -> list[Where]:
    return ["in a reply"] if isinstance(error, redis_errors.ResponseError) else ["connecting", "sending", "in a reply"]


def _rows(errors: list[Exception]) -> list[Any]:
    return [pytest.param(error, where, id=f"{name(error)}-{where}") for error in errors for where in _where(error)]


@pytest.mark.parametrize(("error", "where"), _rows([error for error, _ in OUTAGES]))
async def test_an_outage_counts_and_opens_the_breaker(error: Exception, where: Where) -> None:
    """Five in a row, each decided by the failure policy; the sixth is not asked."""
    outcome = await ask(error, where, breaker=CircuitBreaker(failures=5, open_for=60))
    assert outcome == Outcome("fail_closed", None, 5, "open")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("invalid literal for int() with base 10: b'abc'"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=name,
)
async def test_a_reply_that_is_no_redis_is_an_outage(error: Exception) -> None:
    """The parser in Python stumbles over it with whatever error it happens to meet."""
    outcome = await ask(error, "in a reply", breaker=CircuitBreaker(failures=5, open_for=60))
    assert outcome == Outcome("fail_closed", None, 5, "open")


@pytest.mark.parametrize(("error", "where"), _rows([error for error, _ in MISTAKES]))
async def test_a_mistake_raises_and_never_opens_the_breaker(error: Exception, where: Where) -> None:
    """However often."""
    outcome = await ask(error, where, breaker=CircuitBreaker(failures=1))
    assert (outcome.source, outcome.failures, outcome.state) == ("", 0, "closed")
    assert type(outcome.raised) is BackendError


@pytest.mark.parametrize("error", OVERLOADS, ids=name)
async def test_a_full_pool_does_not_open_the_breaker(error: Exception) -> None:
    """The failure policy decides at the deadline."""
    outcome = await ask(error, "connecting", times=2, breaker=CircuitBreaker(failures=1))
    assert outcome == Outcome("fail_closed", None, 0, "closed")


async def test_a_mistake_found_by_the_probe_closes_the_breaker() -> None:
    """The server answers, so nobody is kept from hearing what is wrong."""
    breaker = CircuitBreaker(failures=1, open_for=0.01)
    breaker.failed(breaker.generation, 0)  # long ago
    outcome = await ask(redis_errors.NoPermissionError("User u has no permissions"), "in a reply", 3, breaker=breaker)
    assert outcome.state == "closed"
    assert "denies a right" in str(outcome.raised)
