"""One connection with a script call in flight at a time."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import anyio
from redis import exceptions as redis_errors

from ..errors import BackendOverloaded, BackendUnavailable
from ..events import Exchanged
from .batching import closed, given_up
from .wire import pack_calls, translate

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

    from ..errors import BackendError
    from .batch import Batch
    from .batching import Hub

_log = logging.getLogger(__name__)

_STARVED_RETRY = 0.005
"""Seconds between two looks at a pool that has no connection free."""
_CONNECT_PATIENCE = 1.0
"""The most seconds to connect in, where that is longer than the deadline."""
_TURNS_FOR_OTHERS = 4
"""How many turns of the loop a waiter of redis-py's blocking pool needs to take what was given back."""


_open_lanes: set[Lane] = set()


class Connector(Protocol):
    """Where lanes get their connections from."""

    async def connect(self) -> AbstractConnection:
        """A connection that is ready to send."""
        ...

    async def release(self, connection: AbstractConnection) -> None:
        """Give one back."""
        ...

    @property
    def only_one(self) -> bool:
        """Whether there is but one connection, which others want, too."""
        ...


class Lane:
    """Serves a hub's queue over one connection, call by call, in a task of its own."""

    def __init__(self, hub: Hub, connector: Connector) -> None:
        self._hub = hub
        self._connector = connector
        self._connection: AbstractConnection | None = None
        self._idle: asyncio.Future[None] | None = None
        self._dropped = False
        self._refusal: BackendError | None = None
        self.is_opening = False
        # A context of its own: the lane outlives the caller whose question started it.
        self._task = hub.loop.create_task(self._run(), name="aiolimit lane", context=contextvars.Context())
        # Event loops hold on to tasks weakly: without this a lane could be collected in its sleep.
        _open_lanes.add(self)
        self._task.add_done_callback(lambda _: _open_lanes.discard(self))

    def __repr__(self) -> str:
        state = "ended" if self.ended else "opening" if self.is_opening else "idle" if self._idle else "busy"
        return f"<Lane {state}>"

    @property
    def ended(self) -> bool:
        """Whether its task is over."""
        return self._task.done()

    @property
    def is_connected(self) -> bool:
        """Whether it holds a connection."""
        return self._connection is not None and not self.ended

    def wake(self) -> bool:
        """Serve the queue now, if idle. Gives whether it was."""
        if self._idle is None or self._idle.done():
            return False
        self._idle.set_result(None)
        return True

    def drop(self) -> None:
        """Give up the call in flight and its connection: its answers come too late for everyone."""
        if not self._dropped:
            _log.debug("giving the connection up: nobody waits for its answers any more")
            self._dropped = True
            self._task.cancel()

    async def aclose(self) -> None:
        """End the task and close the connection."""
        self._task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._serve()
                except asyncio.CancelledError:
                    if not self._dropped or self._task.uncancel():
                        raise
                    self._dropped = False
                    await self._disconnect()
                except Exception:  # noqa: BLE001  (whatever it was, callers must not wait for a dead lane)
                    # Not of the server's making: a pool that will not take its connection back, say. The queue goes on.
                    _log.exception("a lane failed and goes on")
                    self._connection = None
                    await asyncio.sleep(_STARVED_RETRY)
        finally:
            with anyio.CancelScope(shield=True):
                await self._disconnect()

    async def _serve(self) -> None:
        """Serve the queue until it is empty, then wait to be woken."""
        while self._hub.has_work:
            _raise_if_cancelled()
            connection = await self._ready()
            if connection is not None:
                batches = self._hub.take()
                self._hub.wake_lane()  # what is left over is work for another
                if batches:
                    await self._exchange(connection, batches)
                if self._connector.only_one:
                    await self._give_back()
            elif self._hub.has_other_connection(self):
                self._hub.wake_connected_lane()
                break
            elif self._hub.starved:
                await asyncio.sleep(_STARVED_RETRY)
        _raise_if_cancelled()
        self._idle = self._hub.loop.create_future()
        try:
            await self._idle
        finally:
            self._idle = None

    async def _give_back(self) -> None:
        """Let the application have the one connection of its pool for a while."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._connector.release(connection)
            for _ in range(_TURNS_FOR_OTHERS):
                await asyncio.sleep(0)

    async def _ready(self) -> AbstractConnection | None:
        """The connection, opened if need be; None when another lane should serve the queue, or there is none left."""
        if self._connection is not None:
            if _is_alive(self._connection):
                return self._connection
            await self._disconnect()
        hub = self._hub
        self.is_opening = True
        generation = hub.breaker.generation
        # An attempt may outlast those who asked for it: the next ones need the connection, too.
        patience = asyncio.timeout(max(hub.deadline, _CONNECT_PATIENCE))
        try:
            async with patience:
                self._connection = await self._connector.connect()
        except Exception as error:  # noqa: BLE001  (whatever ends the attempt is the answer to those who wait)
            if patience.expired():
                hub.expire_due()  # has told the breaker, if anybody waited
                return None
            failure = translate(error)
            _log.debug("not connected: %s", failure)
            hub.starved = isinstance(failure, BackendOverloaded)
            if hub.starved or hub.has_other_connection(self):
                return None
            for batch in hub.take():
                batch.fail(partial(translate, error))
            self._report(generation, failure)
            return None
        finally:
            self.is_opening = False
        _log.debug("connected to %s", hub.server)
        hub.starved = False
        hub.stats.connections += 1
        return self._connection

    async def _exchange(self, connection: AbstractConnection, batches: list[Batch]) -> None:
        """Send these batches once and hand out what comes back."""
        hub, stats = self._hub, self._hub.stats
        decisions = sum(len(batch.keys) for batch in batches)
        stats.calls += len(batches)
        stats.decisions += decisions
        generation = hub.breaker.generation
        failure: BackendError | None = None
        heard = True
        self._refusal = None
        start, sent_at = time.monotonic(), hub.loop.time()
        for batch in batches:
            batch.lane, batch.sent_at = self, sent_at
        try:
            missing = await self._round(connection, batches, ())
            while missing:
                # The first call of each script carries its text, and the rest of them find it there.
                texts = {batch.kind.script.sha: batch for batch in reversed(missing)}
                stats.script_loads += len(texts)
                missing = await self._round(connection, missing, list(texts.values()))
            failure = self._refusal
        except asyncio.CancelledError:
            for batch in batches:
                batch.fail(given_up if self._dropped else closed)
            failure = given_up() if self._dropped else closed()
            heard = self._dropped  # closing says nothing about the server
            raise
        except Exception as error:  # noqa: BLE001  (clients raise more than their own errors out of a dying transport)
            failure = translate(error)
            for batch in batches:
                batch.fail(partial(translate, error))
            await self._disconnect()
        finally:
            for batch in batches:
                batch.lane = None
            seconds = time.monotonic() - start
            if heard:
                self._report(generation, failure, seconds)
            _log.debug("done, %s", failure or f"{decisions} answered")
            hub.tell(Exchanged(hub.server, decisions, len(batches), seconds, failure))

    def _report(self, generation: int, failure: BackendError | None, seconds: float = 0.0) -> None:
        """Let the breaker know. A refusal that someone must mend counts as neither, but shows a server."""
        hub = self._hub
        is_outage = isinstance(failure, BackendUnavailable) and not isinstance(failure, BackendOverloaded)
        if failure is None or (not is_outage and hub.breaker.state == "half_open"):
            hub.breaker.succeeded(generation, time.monotonic(), seconds)
        elif is_outage:
            hub.report_failure(generation)

    async def _round(
        self, connection: AbstractConnection, batches: list[Batch], with_text: list[Batch] | tuple[()]
    ) -> list[Batch]:
        """One write and its replies. Gives the batches whose script the server does not know."""
        missing: list[Batch] = []
        if _log.isEnabledFor(logging.DEBUG):
            calls = [
                f"{'EVAL' if b in with_text else 'EVALSHA'} {b.kind.script.name} of {len(b.keys)}" for b in batches
            ]
            _log.debug("sending %s", ", ".join(calls))
        await connection.send_packed_command(pack_calls(batches, with_text), check_health=False)
        for batch in batches:
            try:
                reply = cast("object", await connection.read_response(disable_decoding=True))
            except ValueError as error:  # redis-py's own parser, where the other side does not speak the protocol
                raise redis_errors.InvalidResponse(str(error)) from error
            except redis_errors.NoScriptError:
                _log.debug("the server does not know %s", batch.kind.script.name)
                missing.append(batch)
            except redis_errors.ReadOnlyError:
                raise
            except redis_errors.ResponseError as error:
                if not isinstance(self._refusal, BackendUnavailable):
                    self._refusal = translate(error)
                batch.fail(partial(translate, error))
            else:
                answers = cast("list[int]", reply) if isinstance(reply, list) else []
                if len(answers) != 4 * len(batch.keys):
                    raise redis_errors.InvalidResponse(
                        f"{len(batch.keys)} questions were not answered by {reply!r:.40}"
                    )
                batch.settle(answers)
                self._hub.answered_at = self._hub.loop.time()
        return missing

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
            await self._connector.release(connection)


def _raise_if_cancelled() -> None:
    """End what was cancelled, though the cancellation got lost on its way through a client."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _is_alive(connection: AbstractConnection) -> bool:
    """Whether the other side has not hung up while the connection was idle. Costs no system call."""
    reader = getattr(connection, "_reader", None)  # there is no public way that does not read or wait
    if reader is None:
        return False
    return not (isinstance(reader, asyncio.StreamReader) and (reader.at_eof() or reader.exception() is not None))
