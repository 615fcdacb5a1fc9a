"""Faults to put a server through, and what the tests measure meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiolimit import CircuitBreaker, Decision, Limiter, RedisBackend

from ..conformance.stores import PATIENCE
from ..support.proxy import FaultProxy
from ..support.servers import HOST, Server

Failure = Literal["open", "closed", "local"]
SOURCES = {"open": "fail_open", "closed": "fail_closed", "local": "fallback"}
DEADLINE = 0.1
SLACK = 1.0
"""Seconds that a busy machine may be late. A call without a deadline would take as long as the fault does."""

WRONG_REPLIES: dict[str, tuple[bytes, bool]] = {
    "closes on the question": (b"", True),
    "half a reply, then closes": (b"*4\r\n:1\r\n:9", True),
    "half a reply, then silence": (b"*4\r\n:1\r\n:9", False),
    "a page of the web": (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", True),
    "noise": (bytes(range(128, 256)) + b"\r\n", True),
    "another type": (b"+OK\r\n" * 4, False),
    "nothing": (b"*-1\r\n" * 4, False),
    "too short a list": (b"*2\r\n:1\r\n:9\r\n" * 4, False),
    "a list of texts": (b"*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n" * 4, False),
}
"""What a peer that is no server replies to whatever it is sent, and whether it then closes the connection."""


class Peer:
    """Listens, and answers each chunk that it is sent with the same bytes."""

    def __init__(self) -> None:
        self.port = 0
        self.reply = b""
        self.closes = False
        self.accepted = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> Peer:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Listen no more."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await until(lambda: not self._writers)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError):
                while await reader.read(65_536):
                    writer.write(self.reply)
                    await writer.drain()
                    if self.closes:
                        break
        finally:
            writer.close()
            self._writers.discard(writer)


def lead_to(wire: FaultProxy, port: int) -> None:
    """Let the wire lead elsewhere from now on."""
    wire._upstream_port = port
    wire.cut()


@asynccontextmanager
async def fault(name: str, server: Server, wire: FaultProxy, peer: Peer) -> AsyncIterator[None]:
    """Whoever asks through the wire meets this fault."""
    if name == "frozen":
        server.pause()
        try:
            yield
        finally:
            server.resume()
    elif name == "stalled":
        wire.stall()
        yield
        wire.resume()
    elif name == "silent":
        wire.silent(True)
        wire.cut()
        yield
        wire.silent(False)
    elif name == "slow":
        wire.latency = 0.5
        yield
        wire.latency = 0.0
    else:
        peer.reply, peer.closes = WRONG_REPLIES[name]
        lead_to(wire, peer.port)
        yield
        lead_to(wire, server.port)


FAULTS = ("frozen", "stalled", "silent", "slow", *WRONG_REPLIES)


def disabled() -> CircuitBreaker:
    """A breaker that stays out of the way."""
    breaker = CircuitBreaker()
    breaker.disable()
    return breaker


def state_of(backend: RedisBackend) -> str:
    """The breaker's state now; a type checker believes that a property stays as it was."""
    return backend.breaker.state


@dataclass
class Watch:
    """What came of calls, and how long they took."""

    took: list[float] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    async def time(self, call: Awaitable[Any]) -> None:
        """Await the call."""
        start = time.monotonic()
        found = await call
        self.took.append(time.monotonic() - start)
        self.decisions += found if isinstance(found, list) else [found]

    @property
    def sources(self) -> set[str]:
        """Who decided."""
        return {decision.source for decision in self.decisions}


async def until(true: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)


async def recovered(limiter: Limiter, key: str = "again") -> float:
    """Wait until the server decides again, and knows what was decided without it; gives how long the first took, in
    seconds.
    """
    start = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while (await limiter.peek(key)).source != "redis":  # noqa: ASYNC110  (nor here)
            await asyncio.sleep(0.002)
    took = time.monotonic() - start
    await until(lambda: limiter._settling is None)
    return took


async def charged(limiter: Limiter, keys: list[str]) -> list[int]:
    """How many units of each key the server knows of."""
    found = await asyncio.gather(*(limiter.peek(key, 0) for key in keys))
    assert {decision.source for decision in found} <= {"redis"}
    return [limiter.policy.limit - decision.remaining for decision in found]


async def quiet(backend: RedisBackend, wire: FaultProxy) -> None:
    """Wait until nothing that was on its way still is."""
    before = None
    while before != (before := (wire.to_server.bytes, wire.accepted, wire.open, backend.stats.calls)):  # noqa: ASYNC110  (nor here)
        await asyncio.sleep(0.1)
