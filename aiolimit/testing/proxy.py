"""A TCP proxy that misbehaves on demand, between a client and a real server.

It runs in a thread with an event loop of its own, so one proxy serves a test that uses several loops, threads or
processes, and a test whose loop is busy does not slow its wire down. Every method takes effect before it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
_CHUNK = 65_536
_NO_LINGER = struct.pack("ii", 1, 0)  # struct linger: on, for no time


@dataclass
class Traffic:
    """What went through in one direction; a chunk is what one read of the socket gave."""

    bytes: int = 0
    chunks: int = 0


class FaultProxy:
    """Forwards connections to `port` on the loopback; `self.port` is where clients connect.

    Faults, each settable at any time:

    - `latency`: seconds that every chunk of a reply is late. A delay line: pipelined replies stay apart as they were.
    - `stall()` ... `resume()`: nothing moves in either direction meanwhile, and nothing is lost.
    - `cut()`: every open connection is reset now. `cut_after(n)`: after n more bytes of replies, in mid-reply.
    - `half_open()`: every connection open now goes dead without a sign; new ones work.
    - `silent(True)`: new connections are accepted and never answered.

    Counted: `accepted` (connections ever), `open` (now), `to_server` and `to_client` (`Traffic` that was passed on).
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.latency = 0.0
        self.accepted = 0
        self.to_server = Traffic()
        self.to_client = Traffic()
        self._upstream_port = port
        self._silent = False
        self._reply_bytes_left: int | None = None
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<FaultProxy {self.port} -> {self._upstream_port} open={self.open} accepted={self.accepted}>"

    @property
    def open(self) -> int:
        """Connections of clients that are open now."""
        return len(self._links)

    def url(self, db: int = 0) -> str:
        """The address clients use instead of the server's."""
        return f"redis://{HOST}:{self.port}/{db}"

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def stop(self) -> None:
        """Reset what is open and listen no more. Stopping twice does no harm."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def stall(self) -> None:
        """Let nothing through in either direction until `resume`."""
        self._do(self._flowing.clear)

    def resume(self) -> None:
        """End a stall: what waited goes on its way."""
        self._do(self._flowing.set)

    def cut(self) -> None:
        """Reset every open connection."""
        self._do(self._abort_links)

    def cut_after(self, reply_bytes: int) -> None:
        """Pass `reply_bytes` more bytes of replies, counted over all connections, then reset the one that had more
        to carry. Once.
        """
        self._reply_bytes_left = reply_bytes

    def half_open(self) -> None:
        """Make every connection open now swallow what it is sent and never answer; it is not closed."""
        self._do(self._deaden_links)

    def silent(self, on: bool) -> None:  # noqa: FBT001  (reads as a switch: proxy.silent(True))
        """Whether connections from now on are accepted and never answered."""
        self._silent = on

    # Below here everything runs in the proxy's own thread.

    def _do(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut_down(self) -> None:
        assert self._server is not None
        self._server.close()
        self._abort_links()
        while self._links:  # noqa: ASYNC110 - a few turns of the loop until the aborted links have noticed
            await asyncio.sleep(0)

    def _abort_links(self) -> None:
        for link in self._links:
            link.abort()

    def _deaden_links(self) -> None:
        for link in self._links:
            link.go_dead()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            if self._silent:
                await link.swallow()
            else:
                await link.run(self._upstream_port)
        finally:
            self._links.discard(link)

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter, traffic: Traffic) -> bool:
        """Write one chunk when the wire is not stalled; False when the connection is to be cut instead."""
        await self._flowing.wait()
        whole = True
        if traffic is self.to_client and self._reply_bytes_left is not None:
            if len(data) > self._reply_bytes_left:
                data, whole = data[: self._reply_bytes_left], False
                self._reply_bytes_left = None
            else:
                self._reply_bytes_left -= len(data)
        traffic.bytes += len(data)
        traffic.chunks += 1
        writer.write(data)
        await writer.drain()
        return whole


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self._dead = False
        self._pumps: list[asyncio.Task[None]] = []

    def go_dead(self) -> None:
        """Swallow everything from now on."""
        self._dead = True

    def abort(self) -> None:
        """Reset both connections."""
        for writer in self._writers:
            if not writer.transport.is_closing():  # without this option, closing would send an orderly FIN
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    async def swallow(self) -> None:
        """Read and never answer, until the client closes."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(_CHUNK):
                pass
        self.abort()

    async def run(self, upstream_port: int) -> None:
        """Carry bytes in both directions until either end closes, then close the other."""
        client = self._writers[0]
        try:
            server_reader, server = await asyncio.open_connection(HOST, upstream_port)
        except OSError:
            self.abort()
            return
        self._writers.append(server)
        from_client = asyncio.ensure_future(self._pump(self._reader, server, self._proxy.to_server))
        from_server = asyncio.ensure_future(self._pump(server_reader, client, self._proxy.to_client))
        self._pumps = [from_client, from_server]
        await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        if self._dead:  # the client must not learn that the server has gone
            await asyncio.wait([from_client])
        for writer in self._writers:
            writer.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, traffic: Traffic) -> None:
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.ensure_future(self._deliver(delayed, writer, traffic))
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(_CHUNK):
                    late = self._proxy.latency if traffic is self._proxy.to_client else 0.0
                    delayed.put_nowait((loop.time() + late, data))
            await delayed.join()
        finally:
            delivery.cancel()

    async def _deliver(
        self, delayed: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, traffic: Traffic
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await delayed.get()
            await asyncio.sleep(due - loop.time())
            with contextlib.suppress(ConnectionError):
                if not self._dead and not await self._proxy.pass_on(data, writer, traffic):
                    self.abort()
            delayed.task_done()
